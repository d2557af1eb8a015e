"""However a value is written, it is seen, and it is said where; what only looks like it is left alone."""

import base64
import html
import json
import quopri
import random
import urllib.parse
from collections.abc import Callable

import pytest

from router.types.request import Endpoint
from tests.classify.looking import CARD, KEY, MAIL, VALUES, chat, classes, classified, findings, said, sent, texts

Write = Callable[[str], str]
_RUSSIAN = str.maketrans("AEKOopacexyTMHBC", "АЕКОорасехуТМНВС")
_GREEK = str.maketrans("AEKIONTo", "ΑΕΚΙΟΝΤο")
_RARE = str.maketrans("ACDEHIKLMNPRSTUVXYZaceiopv", "ᎪꓚꓓꓰꓧꓲⲔᏞꓟꓠⲢᎡꓢⲦꓴⴸⲬꓬꓜаⲥеꭵ𐐬ⲣꮩ")


def _of_digits(zero: int) -> Write:
    return lambda value: "".join(chr(zero + int(one)) if one.isdigit() else one for one in value)


def _mathematical(value: str) -> str:
    starts = {"d": 0x1D7CE - ord("0"), "u": 0x1D400 - ord("A"), "l": 0x1D41A - ord("a"), "": 0}
    return "".join(
        chr(ord(one) + starts["d" * one.isdigit() or "u" * one.isupper() or "l" * one.islower()]) for one in value
    )


def _full_width(value: str) -> str:
    return "".join("\u3000" if one == " " else chr(ord(one) + 0xFEE0) for one in value)


def _base64(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


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
    "mathematical": _mathematical,
    "tags": lambda value: "".join(chr(0xE0000 + ord(one)) for one in value),
    "cyrillic": lambda value: value.translate(_RUSSIAN),
    "greek": lambda value: value.translate(_GREEK),
    "rare scripts": lambda value: value.translate(_RARE),
    "arabic digits": _of_digits(0x660),
    "devanagari digits": _of_digits(0x966),
    "percent": lambda value: "".join(f"%{ord(one):02X}" for one in value),
    "form": urllib.parse.quote_plus,
    "percent twice": lambda value: _quoted(_quoted(value)),
    "URL": _quoted,
    "entities": lambda value: "".join(f"&#{ord(one)};" for one in value),
    "hexadecimal entities": lambda value: "".join(f"&#x{ord(one):x};" for one in value),
    "entities twice": lambda value: html.escape("".join(f"&#{ord(one)};" for one in value)),
    "\\x": lambda value: "".join(f"\\x{ord(one):02x}" for one in value),
    "\\u": lambda value: "".join(f"\\u{ord(one):04x}" for one in value),
    "\\u{}": lambda value: "".join(f"\\u{{{ord(one):x}}}" for one in value),
    "octal": lambda value: "".join(f"\\{ord(one):03o}" for one in value),
    "full width in URL": lambda value: _quoted(_full_width(value)),
    "quoted-printable": lambda value: "".join(f"={ord(one):02X}" for one in value),
}
HIDDEN: dict[str, Write] = {
    "base64": _base64,
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(f"{value}??>".encode()).decode().rstrip("="),
    "base64 of UTF-16": lambda value: base64.b64encode(value.encode("utf-16-le")).decode(),
    "base32": lambda value: base64.b32encode(value.encode()).decode(),
    "base64 in base64": lambda value: _base64(_base64(value)),
    "base64 in a URL": lambda value: f"https://example.com/r/{_base64(value)}/x",
    "base64 wrapped": lambda value: base64.encodebytes(
        f"{'some words before it ' * 6}{value} and after".encode()
    ).decode(),
    "base64 and a word": lambda value: base64.encodebytes(f"{'words ' * 20}{value}".encode()).decode() + "thanks",
    "base64 in JSON": lambda value: json.dumps({"a": base64.encodebytes(f"{'words ' * 20}{value}".encode()).decode()}),
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
    "in lines": "\n".join,
}
AROUND = ("{}", "the value is {} you see", "see: {}", "请看 {} 谢谢", '{{"a": "{}"}}')


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", [*FOLDED, *HIDDEN, *AMONG])
@pytest.mark.parametrize("data_class", VALUES)
def test_values_are_seen_however_they_are_written(name: str, data_class: str, around: str) -> None:
    write = (FOLDED | HIDDEN | AMONG)[name]
    request = said(around.replace("{}", write(VALUES[data_class])).replace("{{", "{").replace("}}", "}"))
    found = [finding for finding in findings(request) if finding.data_class == data_class]
    assert found
    assert {finding.path for finding in found} == {("messages", 0, "content")}


WORDS = {
    "Υ-6851737-М": "identifiers.nie",
    "АВ 12 34 56 С": "identifiers.nino",
    "-----ΒΕGΙN РRIVАТЕ КЕУ-----\n" + "MIIEpAIBAAKCAQEA" * 4 + "\n-----ЕND РRIVАТE КЕУ-----": "secrets.private_key",
    "АGЕ-ЅЕСRЕТ-КЕУ-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"[:29] * 2: "secrets.private_key",
    "Аuthorization: Ваѕіс с3ZjОk9nYWg3T0hЕRV9WZUtHRTk=": "secrets.authorization",
}


@pytest.mark.parametrize("written", WORDS)
def test_words_of_lookalikes_alone_are_read_with_what_is_mixed_beside_them(written: str) -> None:
    for around in ("{}", "DNI/NINO/NIE: {} please", '{{"NIE, NINO": "{}"}}'):
        assert WORDS[written] in {finding.detector for finding in findings(said(around.format(written)))}


@pytest.mark.parametrize("name", [*FOLDED, *HIDDEN])
def test_cards_too(name: str) -> None:
    request = said(f"pay with {(FOLDED | HIDDEN)[name](CARD)} please")
    assert any(finding.detector == "identifiers.card" for finding in findings(request))


@pytest.mark.parametrize("name", FOLDED)
def test_what_can_be_replaced_is_the_value_as_it_is_written(name: str) -> None:
    written = FOLDED[name](KEY)
    request = said(f"before {written} after")
    (finding,) = [finding for finding in findings(request) if finding.data_class == "secret"]
    assert finding.exact
    assert texts(request)[finding.path][finding.start : finding.end] == written.strip("\u2066\u2069\u202c\u202e")


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_hidden_can_not_be_replaced_but_it_is_said_where(name: str) -> None:
    written = HIDDEN[name](KEY)
    request = said(f"before {written} after")
    (finding,) = [finding for finding in findings(request) if finding.data_class == "secret"]
    assert not finding.exact
    assert texts(request)[finding.path][finding.start : finding.end] in written


SPLIT = {
    "two parts": chat({"role": "user", "content": [{"type": "text", "text": one} for one in (KEY[:9], KEY[9:])]}),
    "a part a character": chat({"role": "user", "content": [{"type": "text", "text": one} for one in f"is {KEY} so"]}),
    "long parts": chat(
        {
            "role": "user",
            "content": [{"type": "text", "text": one} for one in ("x " * 200 + KEY[:9], KEY[9:] + " y" * 200)],
        }
    ),
    "two messages": said(KEY[:9], KEY[9:]),
    "two roles": chat({"role": "system", "content": f"is {KEY[:9]}"}, {"role": "user", "content": f"{KEY[9:]} so"}),
    "an answer in between": chat(
        {"role": "user", "content": f"is {KEY[:9]}"},
        {"role": "assistant", "content": "Go on."},
        {"role": "user", "content": f"{KEY[9:]} so"},
    ),
    "base64": said(_base64(f"it is {KEY} and so on")[:17], _base64(f"it is {KEY} and so on")[17:]),
}


@pytest.mark.parametrize("name", SPLIT)
def test_values_that_were_taken_apart_are_seen(name: str) -> None:
    (finding,) = [one for one in findings(SPLIT[name]) if one.data_class == "secret"]
    assert not finding.exact
    assert finding.start < finding.end <= len(texts(SPLIT[name])[finding.path])


def test_what_stands_whole_beside_a_seam_counts_once() -> None:
    for request in (said("mail to", MAIL), said(MAIL, "now"), said("a" * 300, MAIL, "b" * 300)):
        (finding,) = findings(request)
        assert finding.exact
        assert texts(request)[finding.path][finding.start : finding.end] == MAIL


def test_texts_of_a_list_are_not_joined() -> None:
    assert not classes(sent(Endpoint.EMBEDDINGS, {"input": [KEY[:9], KEY[9:]]}))
    assert not classes(said("4111 1111", "x" * 200, "1111 1111"))


RANDOM = random.Random(7)  # noqa: S311 - no secrets
HARMLESS = {
    "russian": "Сегодня хорошая погода, мы пойдём гулять в парк. Моя почта скоро придёт, жду 3 дня с iPhone 15. " * 5,
    "russian with numbers": "В 2024 году 3-х дней, 220 В, С 12 по 15 мая, Т-34, USB-кабель, iPhone-ом и оса. " * 5,
    "armenian": "Երևանը Հայաստանի մայրաքաղաքն է և ունի 1 միլիոն բնակիչ։ " * 5,
    "greek": "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας και έχει 3 εκατομμύρια κατοίκους. " * 5,
    "chinese": "我们今天去公园散步，天气很好（二十度）。购买１２个苹果！" * 5,
    "arabic": "في عام ٢٠٢٤ كان عدد السكان ١٢٣٤٥ نسمة. " * 5,
    "emoji": "❤️ 👩‍💻 1️⃣ 2️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 done ✅ " * 5,
    "percent URL": "https://example.com/a%20b%2Fc?q=caf%C3%A9%20au%20lait&x=%E4%BD%A0%E5%A5%BD&n=100%25",
    "paths": "/usr/lib/python3.11/site-packages/numpy/core/resources.py and ../a_long_module_name/AnotherLongClassName",
    "hashes": " ".join(RANDOM.randbytes(32).hex() for _ in range(20)),
    "random base64": base64.b64encode(RANDOM.randbytes(3000)).decode(),
    "code": 'print("a\\n\\tb"); x = "\\\\server\\name"; re.compile(r"\\d+\\.\\d+"); a &= b; s = f"{x!r:>10}"' * 3,
    "table": "| 1 | 0 | 1 |\n|---|---|---|\n| a | b | c |\n" + "0 1 0 0 1 1 0 1\n" * 4,
    "json": json.dumps({"total": 1234.5, "items": [{"sku": "AB-1234", "n": 17, "at": "2026-03-04T05:06:07Z"}] * 5}),
    "html": "<p>Fish &amp; chips &lt;3 &copy; 2026 &#8212; done</p>" * 5,
}


@pytest.mark.parametrize("name", HARMLESS)
def test_lookalikes_stay_clean(name: str) -> None:
    assert not findings(said(HARMLESS[name]))


def test_ten_layers_are_too_many() -> None:
    wrapped = KEY
    for _ in range(10):
        wrapped = _base64(wrapped)
    assert classified(said(wrapped)).classes == {"internal", "pii", "secret"}
