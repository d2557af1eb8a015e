"""However a value is written, it is seen, and its place is known; what only looks like it is left alone."""

import base64
import html
import json
import quopri
import random
import re
import urllib.parse
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.views import HitPlace, NestedTooDeep, TextView, body_views, views
from router.types.request import Endpoint, Finding, Passage, Request
from tests.classify import looking
from tests.classify.looking import KEY, MAIL, VALUES, classified, conversation, findings, samples, sent, texts, user
from tests.tables import each_row

Write = Callable[[str], str]
_RUSSIAN = str.maketrans("AEKOopacexyTMHBC", "АЕКОорасехуТМНВС")
_GREEK = str.maketrans("AEKIONTo", "ΑΕΚΙΟΝΤο")
_RARE = str.maketrans("ACDEHIKLMNPRSTUVXYZaceiopv", "ᎪꓚꓓꓰꓧꓲⲔᏞꓟꓠⲢᎡꓢⲦꓴⴸⲬꓬꓜаⲥеꭵ𐐬ⲣꮩ")


def _each(write: Callable[[str], str]) -> Write:
    return lambda value: "".join(map(write, value))


def _coded(form: str) -> Write:
    """Each character as its number, in a form of `str.format`."""
    return _each(lambda letter: form.format(ord(letter)))


def _digits(zero: int) -> Write:
    return _each(lambda letter: chr(zero + int(letter)) if letter.isdigit() else letter)


def _mathematical(letter: str) -> str:
    first, start = ("0", 0x1D7CE) if letter.isdigit() else ("A", 0x1D400) if letter.isupper() else ("a", 0x1D41A)
    return chr(ord(letter) - ord(first) + start) if letter.isalnum() else letter


_full_width = _each(lambda letter: "\u3000" if letter == " " else chr(ord(letter) + 0xFEE0))


def _base64(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def _wrapped(value: str) -> str:
    return base64.encodebytes(f"{'words ' * 20}{value}".encode()).decode()


def _quoted(value: str) -> str:
    return urllib.parse.quote(value, safe="")


# What replaces the value by other characters of its own: these can be replaced by a placeholder.
FOLDED: dict[str, Write] = {
    "as it is": lambda value: value,
    "zero width": "\u200b".join,
    "bidi": lambda value: "\u2066" + value[:3] + "\u202e" + value[3:] + "\u202c\u2069",
    "controls": "\0".join,
    "delete": lambda value: value[:5] + "\x7f" + value[5:],
    "soft hyphen": lambda value: value[:5] + "\u00ad" + value[5:],
    "strikethrough": "\u0336".join,
    "variation selectors": "\ufe0f".join,
    "full width": _full_width,
    "mathematical": _each(_mathematical),
    "tags": _each(lambda letter: chr(0xE0000 + ord(letter))),
    "cyrillic": lambda value: value.translate(_RUSSIAN),
    "greek": lambda value: value.translate(_GREEK),
    "rare scripts": lambda value: value.translate(_RARE),
    "arabic digits": _digits(0x660),
    "devanagari digits": _digits(0x966),
    "percent": _coded("%{:02X}"),
    "form": urllib.parse.quote_plus,
    "percent twice": lambda value: _quoted(_quoted(value)),
    "URL": _quoted,
    "entities": _coded("&#{};"),
    "hexadecimal entities": _coded("&#x{:x};"),
    "entities twice": lambda value: html.escape(_coded("&#{};")(value)),
    "\\x": _coded("\\x{:02x}"),
    "\\u": _coded("\\u{:04x}"),
    "\\u{}": _coded("\\u{{{:x}}}"),
    "octal": _coded("\\{:03o}"),
    "full width in URL": lambda value: _quoted(_full_width(value)),
    "quoted-printable": _coded("={:02X}"),
}
HIDDEN: dict[str, Write] = {
    "base64": _base64,
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(f"{value}??>".encode()).decode().rstrip("="),
    "base64 of UTF-16": lambda value: base64.b64encode(value.encode("utf-16-le")).decode(),
    "base32": lambda value: base64.b32encode(value.encode()).decode(),
    "base64 in base64": lambda value: _base64(_base64(value)),
    "base64 in a URL": lambda value: f"https://example.com/r/{_base64(value)}/x",
    "base64 wrapped": lambda value: _wrapped(f"{value} and after"),
    "base64 and a word": lambda value: _wrapped(value) + "thanks",
    "base64 in JSON": lambda value: json.dumps({"a": _wrapped(value)}),
    "data URL": lambda value: f"data:text/plain;base64,{_base64(value)}",
    "percent in base64": lambda value: _base64(_quoted(value)),
    "base64 with zero width": lambda value: "\u200b".join(_base64(value)),
    "hex": lambda value: value.encode().hex(),
    "hex with 0x": lambda value: "0x" + value.encode().hex(),
    "hex in pairs": lambda value: value.encode().hex(" "),
    "hex with colons": lambda value: value.encode().hex(":"),
}
AMONG: dict[str, Write] = {
    "soft breaks": lambda value: quopri.encodestring(f"{'word ' * 14}{value}".encode()).decode().replace("@", "=40"),
    "JSON in JSON in JSON": lambda value: json.dumps(json.dumps({"a": json.dumps({"b": f"\n{value}\n"})})),
    "spaced": " ".join,
    "spaced for long": lambda value: " ".join("v" * 5_000 + "." + value + "." + "w" * 5_000),
    "in lines": "\n".join,
}
AROUND = ("{}", "the value is {} you see", "see: {}", "请看 {} 谢谢", '{{"a": "{}"}}')


def of_class(request: Request, data_class: str) -> list[Finding]:
    return [finding for finding in findings(request) if finding.data_class == data_class]


def shown(request: Request, finding: Finding) -> str:
    """What the request has where it was found."""
    return texts(request)[finding.path][finding.start : finding.end]


@each_row("around", AROUND)
@each_row("write", (FOLDED | HIDDEN | AMONG).values(), ids=[*FOLDED, *HIDDEN, *AMONG])
@each_row("data_class", VALUES)
def test_values_are_seen_however_they_are_written(data_class: str, write: Write, around: str) -> None:
    text = around.replace("{}", write(VALUES[data_class])).replace("{{", "{").replace("}}", "}")
    assert {finding.path for finding in of_class(user(text), data_class)} == {("messages", 0, "content")}


WORDS = {
    "Υ-6851737-М": "identifiers.nie",
    "АВ 12 34 56 С": "identifiers.nino",
    "-----ΒΕGΙN РRIVАТЕ КЕУ-----\n" + "MIIEpAIBAAKCAQEA" * 4 + "\n-----ЕND РRIVАТE КЕУ-----": "secrets.private_key",
    "АGЕ-ЅЕСRЕТ-КЕУ-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"[:29] * 2: "secrets.private_key",
    "Аuthorization: Ваѕіс с3ZjОk9nYWg3T0hЕRV9WZUtHRTk=": "secrets.authorization",
}


@each_row("around", ["{}", "DNI/NINO/NIE: {} please", '{{"NIE, NINO": "{}"}}'])
@each_row("written, detector", WORDS.items())
def test_words_of_lookalikes_are_read_with_what_is_beside_them(written: str, detector: str, around: str) -> None:
    assert detector in {finding.detector for finding in findings(user(around.format(written)))}


@each_row("name, write", (FOLDED | HIDDEN).items())
def test_a_value_can_be_replaced_where_it_is_written_otherwise_and_not_where_it_hides(name: str, write: Write) -> None:
    request, card = user(f"before {write(KEY)} after"), user(f"pay with {write(looking.CARD)} please")
    (finding,) = of_class(request, "secret")
    assert finding.exact is (name in FOLDED)
    assert shown(request, finding) in write(KEY)
    assert not finding.exact or shown(request, finding) == write(KEY).strip("\u2066\u2069\u202c\u202e")
    assert "identifiers.card" in {finding.detector for finding in findings(card)}


def parts(*texts: str) -> Request:
    return looking.chat({"role": "user", "content": [{"type": "text", "text": text} for text in texts]})


SPLIT = {
    "two parts": parts(KEY[:9], KEY[9:]),
    "a part a character": parts(*f"is {KEY} so"),
    "long parts": parts("x " * 200 + KEY[:9], KEY[9:] + " y" * 200),
    "two messages": user(KEY[:9], KEY[9:]),
    "two roles": conversation(("system", f"is {KEY[:9]}"), ("user", f"{KEY[9:]} so")),
    "an answer in between": conversation(("user", KEY[:9]), ("assistant", "Go on."), ("user", KEY[9:])),
    "base64": user(_base64(f"it is {KEY} and so on")[:17], _base64(f"it is {KEY} and so on")[17:]),
}


@each_row("request", SPLIT.values(), ids=list(SPLIT))
def test_values_that_were_taken_apart_are_seen(request: Request) -> None:
    (finding,) = of_class(request, "secret")
    assert not finding.exact
    assert finding.start < finding.end <= len(texts(request)[finding.path])


@each_row("request", [user("mail to", MAIL), user(MAIL, "now"), user("a" * 300, MAIL, "b" * 300)])
def test_what_stands_whole_beside_a_seam_counts_once(request: Request) -> None:
    (finding,) = findings(request)
    assert finding.exact
    assert shown(request, finding) == MAIL


def test_texts_of_a_list_are_not_joined() -> None:
    assert not findings(sent(Endpoint.EMBEDDINGS, {"input": [KEY[:9], KEY[9:]]}))
    assert not findings(user("4111 1111", "x" * 200, "1111 1111"))


RANDOM = random.Random(7)  # noqa: S311 - no secrets
HARMLESS = {
    **{name: " ".join(texts * 5) for name, texts in samples("lookalikes.txt").items()},
    "hashes": " ".join(RANDOM.randbytes(32).hex() for _ in range(20)),
    "random base64": base64.b64encode(RANDOM.randbytes(3000)).decode(),
    "code": 'print("a\\n\\tb"); x = "\\\\server\\name"; re.compile(r"\\d+\\.\\d\\d"); a &= b; s = f"{x!r:>10}"' * 3,
    "json": json.dumps({"total": 1234.5, "items": [{"sku": "AB-1234", "n": 17, "at": "2026-03-04T05:06:07Z"}] * 5}),
}


@each_row("text", HARMLESS.values(), ids=list(HARMLESS))
def test_lookalikes_stay_clean(text: str) -> None:
    assert classified(user(text)).classes == {"internal"}  # and nothing failed


def test_ten_layers_of_base64_and_twenty_of_percents_are_too_many() -> None:
    wrapped, percents = KEY, "%" + "25" * 20 + "41"
    for _ in range(10):
        wrapped = _base64(wrapped)
    assert classified(user(wrapped)).classes == {"internal", "pii", "secret"}
    with pytest.raises(NestedTooDeep) as error:
        list(views([Passage(("user",), percents)], b""))
    assert percents not in str(error.value)


PATTERN = re.compile(r"AKIA[0-9A-Z]{16}")
FIRST = ("messages", 0, "content")


def passages(*texts: str) -> list[Passage]:
    return [Passage(("messages", number, "content"), text, "user") for number, text in enumerate(texts)]


def places(looks: Iterable[TextView]) -> list[HitPlace]:
    """Of all keys, as a scan would see them."""
    found = (view.locate(*match.span()) for view in looks for match in PATTERN.finditer(view.text))
    return list(dict.fromkeys(place for place in found if place is not None))


def test_a_value_of_two_passages_is_at_its_first_part_and_what_no_passage_shows_has_no_path() -> None:
    for before, after in (("a ", " b"), ("a " * 200, " b" * 200)):
        parts = passages(f"{before}{KEY[:5]}", f"{KEY[5:]}{after}")
        assert places(views(parts, b"")) == [HitPlace(FIRST, len(before), len(before) + 5, False)]
    raw = json.dumps({"messages": [{"role": "user", "content": "hello"}], "n": KEY}).encode()
    (place,) = places(views(passages("hello"), raw))
    assert (place.path, place.exact) == ((), False)


@each_row("dump", [json.dumps, lambda body: json.dumps(body, ensure_ascii=False, indent=2)])
@each_row("text", ["short", 'a "quoted"\n\\ line', "größer 你好 😀", "x" * 5_000])
def test_what_the_passages_show_is_not_shown_again(dump: Callable[[object], str], text: str) -> None:
    body = {"tools": [{"name": f"{text} tool"}], "messages": [{"content": f"{text} {KEY}"}], "user": text}
    shown = [Passage(FIRST, f"{text} {KEY}"), Passage(("tools", 0, "name"), f"{text} tool"), Passage(("user",), text)]
    view = next(views(shown, dump(body).encode()))
    assert (view.text.count(KEY), view.text.count(text)) == (1, 3)


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


def test_media_are_left_out_of_a_body_but_a_picture_is_no_place_to_hide() -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG" + bytes(range(256)) * 40).decode()
    body = {"messages": [{"content": [{"image_url": {"url": picture}}, {"source": {"data": picture[22:]}}]}]}
    (view,) = body_views(json.dumps(body).encode())
    assert len(view.text) < 500
    text = _base64(f"{'words ' * 400}{KEY}")
    for hidden in ({"url": f"data:image/png;base64,{text}"}, {"data": text}, {"anything": text}):
        assert places(body_views(json.dumps(hidden).encode()))
        assert places(views([], json.dumps(hidden).encode()))


PIECES = ["%", "a%41", "\\", 'a\\"', "&#65;", "&a", "\u200b", "a\u200b", "A", "QUtJQUlPU0ZPRE5O ", "41", "a ", "["]


@each_row("piece", PIECES)
def test_no_text_grows(piece: str) -> None:
    """Nothing that is decoded is longer than it was written, so that a megabyte stays one."""
    text = piece * (1_000_000 // len(piece))
    looks = list(views(passages(text), b""))
    assert len(looks) < 4
    assert all(len(view.text) <= len(text) for view in looks)


ODD = [
    *("\u200b", "%20", "%25", "&#32;", "\\n", "\\\\", "\\u0020", "=\n", "é", "е", "４", "😀", " ", "\n", '"'),
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
    assert HitPlace(("messages", len(texts), "content"), start, start + len(KEY)) in places(
        views(passages(*planted), raw)
    )


ORDINARY = ["What is the capital of France?", "Paris, I think; is it?\n\nYes: 100 km or so – naïve."]
ENTITIES = ["Traversal &LBT;", "f(Foo &Foo; bar)", "&a;&b;&c;", "&Nothing; &amp;Nothing;"]


@each_row("texts, most", [(ORDINARY, 1), *(([text], 2) for text in ENTITIES)])
def test_ordinary_text_is_read_once_and_no_entity_for_ever(texts: list[str], most: int) -> None:
    assert len(list(views(passages(*texts), json.dumps({"messages": texts}).encode()))) <= most
