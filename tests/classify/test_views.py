"""What is scanned of a request, and where a hit is."""

import base64
import json
import re
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.views import Place, TooMuch, View, body_views, views
from router.types.request import Passage, Path
from tests.classify.looking import KEY
from tests.tables import each_row

VALUE = re.compile(r"AKIA[0-9A-Z]{16}")
FIRST, SECOND = ("messages", 0, "content"), ("messages", 1, "content")


def passages(*texts: str) -> list[Passage]:
    return [Passage(("messages", number, "content"), text, "user") for number, text in enumerate(texts)]


def places(looks: Iterable[View]) -> list[Place]:
    """Of all keys, as a scan would see them."""
    found = (view.locate(*match.span()) for view in looks for match in VALUE.finditer(view.text))
    return list(dict.fromkeys(place for place in found if place is not None))


def test_ordinary_text_has_one_view() -> None:
    texts = ["What is the capital of France?", "Paris, I think; is it?\n\nYes: 100 km or so – naïve."]
    assert len(list(views(passages(*texts), json.dumps({"messages": texts}).encode()))) == 1


def test_every_passage_stands_apart() -> None:
    (view,) = views(passages("one", "two"), b"")
    assert not re.search(r"one\s*two", view.text.split("onetwo")[0])


HITS: list[tuple[tuple[str, ...], tuple[Path, int, int, bool]]] = [
    ((f"a {KEY} b",), (FIRST, 2, 22, True)),
    (("x", f"{KEY}"), (SECOND, 0, 20, True)),
    (("", "", f"{KEY}"), (("messages", 2, "content"), 0, 20, True)),
    ((f"a {KEY[:5]}", f"{KEY[5:]} b"), (FIRST, 2, 7, False)),
    ((f"{'a ' * 200}{KEY[:5]}", f"{KEY[5:]}{' b' * 200}"), (FIRST, 400, 405, False)),
    ((f"a \u200b{KEY[:5]}\u200b\u200d{KEY[5:]}\u200b b",), (FIRST, 3, 25, True)),
    ((f"a {KEY[:5]}%41{KEY[6:]}",), (FIRST, 2, 24, True)),
    (("a \\u0041" + KEY[1:],), (FIRST, 2, 27, True)),
    (("a\\n" + KEY,), (FIRST, 3, 23, True)),
    (("a " + base64.b64encode(f"is {KEY}.".encode()).decode(),), (FIRST, 2, 34, False)),
]


@each_row("texts, expected", HITS)
def test_a_hit_has_its_place(texts: tuple[str, ...], expected: tuple[Path, int, int, bool]) -> None:
    assert places(views(passages(*texts), b"")) == [Place(*expected)]


def test_what_no_passage_shows_has_no_path() -> None:
    raw = json.dumps({"messages": [{"role": "user", "content": "hello"}], "n": KEY}).encode()
    (place,) = places(views(passages("hello"), raw))
    assert (place.path, place.exact) == ((), False)


@each_row("dump", [json.dumps, lambda body: json.dumps(body, ensure_ascii=False, indent=2)])
@each_row("text", ["short", 'a "quoted"\n\\ line', "größer 你好 😀", "x" * 5_000])
def test_what_the_passages_show_is_not_shown_again(dump: Callable[[object], str], text: str) -> None:
    body = {"tools": [{"name": f"{text} tool"}], "messages": [{"content": f"{text} {KEY}"}], "user": text}
    shown = [Passage(FIRST, f"{text} {KEY}"), Passage(("tools", 0, "name"), f"{text} tool"), Passage(("user",), text)]
    view = next(views(shown, dump(body).encode()))
    assert view.text.count(KEY) == 1
    assert view.text.count(text) == 3


def test_only_what_is_near_a_piece_is_looked_at_again() -> None:
    plain, odd = views(passages(f"{KEY} " + "words " * 1_000 + "a%20b" + " words" * 1_000), b"")
    assert len(odd.text) < len(plain.text) / 10
    assert KEY not in odd.text


def test_a_value_longer_than_the_look_around_a_piece_is_seen() -> None:
    text = "tok_" + "abc" * 150 + "\u200b" + "abc" * 150
    token = re.compile("abc[a-z]{300,}")
    seen = [view.locate(*match.span()) for view in views(passages(text), b"") for match in token.finditer(view.text)]
    assert seen[-1] is not None
    assert not seen[-1].exact
    assert seen[-1].start < text.index("\u200b") < seen[-1].end


@each_row("body", [b"", b"null", b"[]", b"not JSON", b"\xff\xfe", b'{"a": 1', b'"text"', b"{}" * 9])
def test_every_body_can_be_looked_at(body: bytes) -> None:
    list(body_views(body))
    assert places(body_views(body + KEY.encode()))


def test_media_are_left_out_of_a_body() -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG" + bytes(range(256)) * 40).decode()
    body = {"messages": [{"content": [{"image_url": {"url": picture}}, {"source": {"data": picture[22:]}}]}]}
    (view,) = body_views(json.dumps(body).encode())
    assert len(view.text) < 500


def test_a_picture_is_no_place_to_hide() -> None:
    text = base64.b64encode(f"{'words ' * 400}{KEY}".encode()).decode()
    for body in ({"url": f"data:image/png;base64,{text}"}, {"data": text}, {"anything": text}):
        assert places(body_views(json.dumps(body).encode()))
        assert places(views([], json.dumps(body).encode()))


PIECES = ["%", "a%41", "\\", 'a\\"', "&#65;", "&a", "\u200b", "a\u200b", "A", "QUtJQUlPU0ZPRE5O ", "41", "a ", "["]


@each_row("piece", PIECES)
def test_no_text_grows(piece: str) -> None:
    """Nothing that is decoded is longer than it was written, so that a megabyte stays one."""
    text = piece * (1_000_000 // len(piece))
    looks = list(views(passages(text), b""))
    assert len(looks) < 4
    assert all(len(view.text) <= len(text) for view in looks)


def test_twenty_layers_are_too_many() -> None:
    wrapped = "%" + "25" * 20 + "41"
    with pytest.raises(TooMuch) as error:
        list(views(passages(wrapped), b""))
    assert wrapped not in str(error.value)


ODD = [
    "\u200b",
    "%20",
    "%25",
    "&#32;",
    "\\n",
    "\\\\",
    "\\u0020",
    "=\n",
    "é",
    "е",
    "４",
    "😀",
    " ",
    "\n",
    '"',
    "words " * 60,
]
WRITTEN = [
    *(KEY, "\u200b".join(KEY), KEY[:7], KEY[7:], base64.b64encode(f"is {KEY}".encode()).decode()),
    *("".join(form.format(ord(letter)) for letter in KEY) for form in ("%{:02x}", "\\u{:04x}", "&#{};")),
    "".join(chr(ord(letter) + 0xFEE0) for letter in KEY),
]
TEXTS = st.lists(st.sampled_from(ODD + WRITTEN) | st.text(max_size=6), max_size=8).map("".join)


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_places_never_lie(texts: list[str]) -> None:
    for place in places(views(passages(*texts), b"")):
        text = texts[int(place.path[1])]
        assert 0 <= place.start < place.end <= len(text)
        if place.exact:
            # What would be replaced is a key by itself, and nothing of it is left behind.
            assert places(views(passages(text[place.start : place.end]), b""))


@settings(deadline=None, max_examples=200)
@given(st.lists(TEXTS, max_size=4), st.text(max_size=20), st.booleans())
def test_a_plain_value_is_found_whatever_is_around_it(texts: list[str], around: str, ascii_only: bool) -> None:
    planted = [*texts, f"{around}. {KEY} .{around}"]
    raw = json.dumps({"messages": [{"content": text} for text in planted]}, ensure_ascii=ascii_only).encode()
    start = len(around) + 2
    assert Place(("messages", len(texts), "content"), start, start + len(KEY)) in places(views(passages(*planted), raw))


@each_row("text", ["Traversal &LBT;", "f(Foo &Foo; bar)", "&a;&b;&c;", "&Nothing; &amp;Nothing;"])
def test_what_only_looks_like_an_entity_is_read_once(text: str) -> None:
    assert len(list(views(passages(text), b""))) <= 2
