"""What an answer comes to: the form in which two answers that say the same are equal.

Numbers, letters of a choice, boxed and announced results, JSON, calls of tools and answers of a few words can be
compared; texts that say more than that can't.
"""

import unicodedata
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import msgspec
import re2

from router.types.outcome import Answer, ToolCall

NOTHING = ""
"""What empty, refused and truncated answers come to: it agrees with nothing."""
FEW_WORDS = 4
"""An answer of so many words is its own result."""
SHORT = 64
"""Characters of a result at most."""
LARGEST = 100
"""Digits of a number at most; a longer one is a text."""
_WHOLE = frozenset({"stop", "tool_calls", "function_call", ""})
"""Reasons to finish that leave nothing out."""
_FENCE = re2.compile(r"(?s)^```\w*\s*\n(.*?)\n?```$")
_BOXED = "\\boxed{"
_ANNOUNCED = re2.compile(
    r"(?im)(?:\b(?:answer|result|solution|choice|option)\b(?: is)?[*_]*\s*[:=]?|####|\b(?:antwort|lösung|ergebnis)\b"
    r"(?: ist| lautet)?[*_]*\s*:?|\b(?:réponse|respuesta|risposta|resposta)\b(?: est| es| è| é)?[*_]*\s*:?"
    r"|答案(?:是|为)?\s*:?|答えは\s*:?|ответ\s*[:—-]?)\s*(.{1,200})$"
)
"""A line that says what the result is, in the words of some languages. NFKC has made wide colons narrow."""
_NUMBER = re2.compile(
    r"[-+]?(?:\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d{1,3})?(?: ?/ ?\d+)?"
)
_MEASURED = re2.compile(r"^(?:[^=:]{1,20}[=:] ?)?(" + _NUMBER.pattern + r")(?: ?\pL+){0,2}$")
"""A number with its unit, or what equals it."""
_LETTER = re2.compile(r"^\(?([A-Ja-j])(?:\)|[.:]|$)(?: .*)?$")
_FRACTION = re2.compile(r"\\[dt]?frac ?\{([^{}]+)\} ?\{([^{}]+)\}")
_DRESS = re2.compile(r"\\(?:text\w*|math\w+|left|right|[,;!() ])|\\(?:[$%])|\^\{?\\circ\}?|[*_`\"“”„«»$€£¥%°]")
"""What is written around a result."""
_FORMULA = re2.compile(r"[\\^=+*/<>]")
_ITEM = re2.compile(r"^(?:\d+[.)]|[-*•#])\s")
_SENTENCE = re2.compile(r"[.!?。]\s+")
_GROUPS = re2.compile(r"^[-+]?\d{1,3}(?:[.,]\d{3})+$")
_EXACT = Context(prec=LARGEST + 10)


def comparable(answer: Answer) -> str | None:
    """`NOTHING` where there is no answer; None where there is one that can't be compared."""
    if answer.refusal or answer.finish_reason not in _WHOLE:
        return NOTHING
    if answer.tool_calls:
        return _encoded(sorted(map(_call, answer.tool_calls)))
    text = unicodedata.normalize("NFKC", answer.text).replace("−", "-").strip()
    return _structured(text) or _result(text) if text else NOTHING


def _call(call: ToolCall) -> tuple[str, str]:
    return call.name, _canonical(call.arguments or "{}") or call.arguments


def _structured(text: str) -> str | None:
    fenced = _FENCE.match(text)
    inner = fenced[1].strip() if fenced else text
    return _canonical(inner) if inner[:1] in ("{", "[") else None


def _canonical(text: str) -> str | None:
    """Names in order, 1.0 as 1; None where it is no JSON."""
    try:
        return _encoded(_plain(msgspec.json.decode(text)))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _result(text: str) -> str | None:
    boxed = _boxed(text)
    if boxed is not None:
        return _value(boxed)
    announced = [found[1] for found in _ANNOUNCED.finditer(text)]
    if announced and (value := _value(announced[-1])) is not None:
        return value
    return (None if "\n" in text else _value(text)) or _concluded(text)


def _boxed(text: str) -> str | None:
    """What stands in the last box."""
    start, depth = text.rfind(_BOXED), 1
    if start < 0:
        return None
    inner = text[start + len(_BOXED) :]
    for at, letter in enumerate(inner):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return inner[:at]
    return None


def _value(result: str) -> str | None:
    """None: it is too long for a result."""
    bare = " ".join(_DRESS.sub("", _FRACTION.sub(r"\1/\2", result)).split()).rstrip(".!。:;, ")
    bare = bare[1:-1] if bare[:1] == "{" and bare[-1:] == "}" else bare
    if letter := _LETTER.match(bare):
        return str(letter[1]).upper()
    if len(bare) > SHORT or not bare:
        return None
    if measured := _MEASURED.match(bare):
        return _number(measured[1]) or bare
    if _FORMULA.search(bare):
        return bare.replace(" ", "")
    return bare.casefold() if len(bare.split()) <= FEW_WORDS else None


def _concluded(text: str) -> str | None:
    """The only number of the last sentence, or the letter that stands alone in the last line; of code, nothing."""
    line = text.splitlines()[-1].rstrip()
    if line[:1].isspace():
        return None
    if letter := _LETTER.match(_DRESS.sub("", line)):
        return str(letter[1]).upper() if len(line) <= SHORT else None
    last = _SENTENCE.split(_DRESS.sub("", line))[-1]
    numbers = [found[0] for found in _NUMBER.finditer(last)]
    return _number(numbers[0]) if len(numbers) == 1 and not _ITEM.match(line) else None


def _number(written: str) -> str | None:
    """1,000 = 1 000 = 1e3 = 2000/2; None where it is no number, such as 1.2.3."""
    above, _, below = written.replace(" ", "").replace("'", "").replace("’", "").partition("/")
    numerator, denominator = _decimal(above), _decimal(below or "1")
    if numerator is None or not denominator:
        return None
    return str(Fraction(numerator) / Fraction(denominator))


def _decimal(written: str) -> Decimal | None:
    """Of a point and a comma the last one is the decimal one; a comma before three digits is none, a point is."""
    if len(written) > LARGEST:
        return None
    point, comma = written.rfind("."), written.rfind(",")
    if point >= 0 and comma >= 0:
        written = written.replace("," if point > comma else ".", "")
    elif _GROUPS.match(written) and (comma >= 0 or written.count(".") > 1):
        written = written.replace(",", "").replace(".", "")
    try:
        return _EXACT.create_decimal(written.replace(",", "."))
    except InvalidOperation:
        return None
