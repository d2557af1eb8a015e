"""The same values, hidden: what is seen of them through the gateway's own reading of a request."""

import base64
import html
import json
import urllib.parse
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from bench.sensitivity.figures import Figure, share
from bench.sensitivity.forms import is_kind
from bench.sensitivity.identifiers import MAKERS, Miss, carried
from bench.sensitivity.secrets import texts as secret_texts
from bench.sensitivity.sentences import Planted, Text
from bench.sensitivity.sight import Sight, said
from bench.sensitivity.split import Split, chance

KEPT = 0.95
"""Of the plain recall."""
Body = dict[str, Any]
Hide = Callable[[Text, Planted, Random], Body | None]
"""None: there is nothing in it that could be hidden this way."""


class Piece:
    """A text around its value."""

    def __init__(self, text: Text, planted: Planted) -> None:
        self.before, self.after = text.text[: planted.start], text.text[planted.end :]
        self.value = text.text[planted.start : planted.end]

    def with_(self, value: str) -> str:
        return self.before + value + self.after


def _value(write: Callable[[str, Random], str]) -> Hide:
    """Only the value is written otherwise."""

    def hide(text: Text, planted: Planted, draw: Random) -> Body | None:
        piece = Piece(text, planted)
        written = write(piece.value, draw)
        return None if written == piece.value else said(piece.with_(written))

    return hide


def _whole(write: Callable[[str, Random], str]) -> Hide:
    return lambda text, planted, draw: said(write(text.text, draw))


def _zero_width(value: str, draw: Random) -> str:
    return (
        "".join(one + (draw.choice(_INVISIBLE) if draw.random() < 0.4 else "") for one in value[:-1])
        + "\u200b"
        + value[-1]
    )


_INVISIBLE = ("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad")


def _full_width(value: str, _: Random) -> str:
    return "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in value)


def _homoglyphs(value: str, draw: Random) -> str:
    """Cyrillic and Greek letters that look the same, for most letters that have one."""
    return "".join(draw.choice(_ALIKE[one]) if one in _ALIKE and draw.random() < 0.8 else one for one in value)


_ALIKE = {
    "a": "а", "c": "сϲ", "e": "е", "i": "і", "j": "ј", "o": "оο", "p": "рρ", "s": "ѕ", "x": "х", "y": "у",
    "A": "АΑ", "B": "ВΒ", "C": "СϹ", "E": "ЕΕ", "H": "НΗ", "I": "ІΙ", "K": "КΚ", "M": "МΜ", "N": "Ν", "O": "ОΟ",
    "P": "РΡ", "S": "Ѕ", "T": "ТΤ", "X": "ХΧ", "Y": "ΥҮ", "Z": "Ζ",
}  # fmt: skip


def _marked(value: str, draw: Random) -> str:
    return "".join(one + ("\u0301" if one.isalnum() and draw.random() < 0.3 else "") for one in value)


def _other_digits(value: str, draw: Random) -> str:
    zero = draw.choice((0x0660, 0x06F0, 0x0966, 0x09E6, 0x0E50, 0x1D7CE, 0x1D7F6))
    return "".join(chr(zero + int(one)) if one in "0123456789" else one for one in value)


def _percent(value: str, draw: Random) -> str:
    """Every character, or what a form would; where that changes nothing, every character."""
    every = "".join(f"%{byte:02X}" for byte in value.encode())
    quoted = urllib.parse.quote(value, safe="")
    return every if quoted == value or draw.random() < 0.5 else quoted


def _base64(text: str, draw: Random) -> str:
    data = text.encode()
    encoded = base64.b64encode(data) if draw.random() < 0.5 else base64.urlsafe_b64encode(data).rstrip(b"=")
    return draw.choice(("{}", "decode this: {}", '{{"data": "{}"}}')).format(encoded.decode())


def _hex(text: str, draw: Random) -> str:
    data = text.encode()
    return draw.choice((data.hex(), data.hex().upper(), "0x" + data.hex(), data.hex(" ")))


def _entities(value: str, draw: Random) -> str:
    if draw.random() < 0.2 and html.escape(value) != value:
        return html.escape(value)
    return "".join(draw.choice((f"&#{ord(one)};", f"&#x{ord(one):x};")) for one in value)


def _escaped(value: str) -> str:
    """Every character as JSON may write it."""
    return "".join(f"\\u{ord(one):04x}" for one in value)


def _call(arguments: str) -> Body:
    call = {"id": "call_1", "type": "function", "function": {"name": "save", "arguments": arguments}}
    return {
        "messages": [
            {"role": "user", "content": "save it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "saved"},
        ]
    }


def _arguments(text: Text, planted: Planted, _: Random) -> Body:
    """The document is written by hand: an encoder would not escape what need not be."""
    piece = Piece(text, planted)
    return _call(f'{{"note": "{_inner(piece.before)}{_escaped(piece.value)}{_inner(piece.after)}"}}')


def _nested(text: Text, planted: Planted, draw: Random) -> Body:
    """Two or three documents deep, the value escaped in the innermost one."""
    piece = Piece(text, planted)
    value = _escaped(piece.value) if draw.random() < 0.5 else _inner(piece.value)
    document = f'{{"note": "{_inner(piece.before)}{value}{_inner(piece.after)}"}}'
    for name in ("payload", "body")[: draw.choice((1, 2))]:
        document = json.dumps({name: document})
    return _call(document) if draw.random() < 0.5 else said(document)


def _inner(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _file(text: Text, _: Planted, draw: Random) -> Body:
    kind = draw.choice(("text/plain", "text/csv", "application/json", "text/plain;charset=utf-8"))
    data = f"data:{kind};base64," + base64.b64encode(text.text.encode()).decode()
    file = {"type": "file", "file": {"filename": "notes.txt", "file_data": data}}
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "read this"}, file]}]}


def _cut(text: Text, planted: Planted, draw: Random) -> tuple[str, str]:
    """In the midst of the value."""
    at = planted.start + (planted.end - planted.start) // 2 + draw.choice((-1, 0, 1))
    return text.text[:at], text.text[at:]


def _parts(text: Text, planted: Planted, draw: Random) -> Body:
    parts = [{"type": "text", "text": part} for part in _cut(text, planted, draw)]
    return {"messages": [{"role": "user", "content": parts}]}


def _messages(text: Text, planted: Planted, draw: Random) -> Body:
    return {"messages": [{"role": "user", "content": part} for part in _cut(text, planted, draw)]}


def _placed(build: Callable[[str], Body]) -> Hide:
    return lambda text, planted, draw: build(text.text)


EVASIONS: dict[str, Hide] = {
    "zero-width characters": _value(_zero_width),
    "full-width characters": _value(_full_width),
    "homoglyphs": _value(_homoglyphs),
    "digits of other scripts": _value(_other_digits),
    "percent-encoding": _value(_percent),
    "HTML entities": _value(_entities),
    "base64": _whole(_base64),
    "hex": _whole(_hex),
    "combining marks": _value(_marked),
    "escaped in tool arguments": _arguments,
    "JSON in JSON": _nested,
    "text file as data URL": _file,
    "split over parts": _parts,
    "split over messages": _messages,
}
_ASKED = said("go on")


def _system(text: str) -> Body:
    return {"messages": [*said(text, "system")["messages"], *_ASKED["messages"]]}


def _result(text: str) -> Body:
    answer = {"role": "tool", "tool_call_id": "call_1", "content": text}
    return {"messages": [*_call("{}")["messages"][:2], answer]}


def _description(text: str) -> Body:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    function = {"name": "find", "description": text, "parameters": schema}
    return _ASKED | {"tools": [{"type": "function", "function": function}]}


def _schema(text: str) -> Body:
    schema = {"name": "answer", "schema": {"type": "object", "description": text}}
    return _ASKED | {"response_format": {"type": "json_schema", "json_schema": schema}}


def _part(part: Body) -> Body:
    return {"messages": [{"role": "user", "content": [part]}]}


def _file_name(text: str) -> Body:
    return _part({"type": "file", "file": {"filename": text, "file_data": "data:application/pdf;base64,JVBERi0xLjcK"}})


def _link(text: str) -> Body:
    return _part({"type": "image_url", "image_url": {"url": f"https://example.org/a.png?q={urllib.parse.quote(text)}"}})


PLACES: dict[str, Hide] = {
    "system message": _placed(_system),
    "tool result": _placed(_result),
    "tool description": _placed(_description),
    "answer's schema": _placed(_schema),
    "file name": _placed(_file_name),
    "link's query": _placed(_link),
    "metadata": _placed(lambda text: _ASKED | {"metadata": {"note": text}}),
    "unknown field": _placed(lambda text: _ASKED | {"x_memory": [{"facts": [text]}]}),
}
"""Other places than a user's message: nothing is hidden, but has to be looked at."""


DEEPER: dict[str, Hide] = {
    "base64 twice": _whole(lambda text, draw: _base64(_base64(text, draw), draw)),
    "percent-encoding twice": _value(lambda value, draw: urllib.parse.quote(_percent(value, draw), safe="")),
    "base64, percent-encoded": _whole(lambda text, draw: urllib.parse.quote(_base64(text, draw), safe="")),
    "full width and zero width": _value(lambda value, draw: _zero_width(_full_width(value, draw), draw)),
    "behind 60 kB of noise": _whole(lambda text, draw: f"{draw.randbytes(30_000).hex()}\n{text}"),
    "in a file of 100 kB": lambda text, planted, draw: _file(_long(text), planted, draw),
    "split over three messages": lambda text, planted, draw: _thirds(text, planted),
}
"""Not promised: two things at once, and more of one."""


def _long(text: Text) -> Text:
    words = "The river rose by some centimetres, and nobody remembers why the second bridge was never opened.\n" * 500
    return Text(f"{words}{text.text}\n{words}", ())


def _thirds(text: Text, planted: Planted) -> Body:
    third = (planted.end - planted.start) // 3
    cuts = (0, planted.start + third, planted.end - third, len(text.text))
    pieces = [text.text[start:end] for start, end in pairwise(cuts)]
    return {"messages": [{"role": "user", "content": piece} for piece in pieces]}


def sample(split: Split, each: int, secrets: int) -> list[Text]:
    """`each` value of every kind of identifier, in sentences that say what it is, and so many secrets of every kind."""
    texts = []
    for kind in MAKERS:
        found = carried(split, kind, kind)
        texts += [next(found) for _ in range(each)]
    return texts + list(secret_texts(split, secrets))


def compare(seeing: Sight, texts: Sequence[Text], split: Split, goals: bool = True) -> tuple[list[Figure], list[Miss]]:
    """Each figure: what is seen hidden, of those that are seen plain."""
    plain = [text for text in texts if _seen(seeing, said(text.text), text)]
    figures, misses = [share("evasions", "plain", "recall", len(plain), len(texts))], []
    total = right = 0
    for name, hide in (EVASIONS | PLACES | DEEPER).items():
        draw, tried, found = chance(split, "evasion", name), 0, 0
        for text in plain:
            body = hide(text, text.planted[0], draw)
            if body is not None:
                hit = _seen(seeing, body, text)
                tried, found = tried + 1, found + hit
                if not hit:
                    misses.append(Miss(text.planted[0].kind, text.planted[0].notation, name))
        figures.append(
            share("evasions", name, "of plain", found, tried, KEPT if goals and name not in DEEPER else None)
        )
        if name in EVASIONS:
            total, right = total + tried, right + found
    figures.insert(1, share("evasions", "all evasions", "of plain", right, total, KEPT if goals else None))
    return figures, misses


def _seen(seeing: Sight, body: Body, text: Text) -> bool:
    """The kind that was planted, wherever the finding says that it is."""
    return any(is_kind(finding, text.planted[0].kind) for finding in seeing.findings(body))
