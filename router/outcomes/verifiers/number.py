"""Whether the number that an answer ends in is the one that the client expects."""

from collections.abc import Iterator
from decimal import Decimal, DivisionByZero, InvalidOperation
from typing import Annotated, Any, Literal

import re2
from pydantic import Field

from router.outcomes.part import Part
from router.outcomes.reading import calls_only, expected
from router.types.outcome import Answer
from router.types.request import Request

MOST_CHARS = 20_000
"""An answer stands at the end: what is further away from it is not looked at."""
_BOXED: Any = re2.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_MARKED: Any = re2.compile(r"####\s*([^\n]+)")
_FRACTION: Any = re2.compile(r"\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}")
_MARK = r"[,.'\x{2019}\x{00a0}\x{202f}]"
"""Between groups of three digits, somewhere."""
_GROUPS = rf"[-+]?\d{{1,3}}({_MARK})\d{{3}}(?:{_MARK}\d{{3}})*([.,]\d+)?"
_LONGEST: Any = re2.Options()
_LONGEST.longest_match = True
_NUMBER: Any = re2.compile(
    rf"[-+]?(?:\d{{1,3}}(?:{_MARK}\d{{3}})+(?:[.,]\d+)?|\d*[.,]\d+|\d+)(?:[eE][-+]?\d{{1,3}})?(?:\s*/\s*\d+)?",
    _LONGEST,
)
_GROUPED: Any = re2.compile(_GROUPS)
_SIGNS = str.maketrans({"\u2212": "-", "\uff0d": "-", "\u066b": ".", "\u066c": ","})
_DIGITS = str.maketrans(
    {chr(zero + value): str(value) for zero in (0x660, 0x6F0, 0x966, 0xFF10) for value in range(10)}
)
"""Arabic, Persian, Devanagari and full-width ones."""


class Number(Part):
    """`metadata.expected` of the request says which; a request without a number there is not judged."""

    kind: Literal["number"]
    tolerance: Annotated[Decimal, Field(ge=0)] = Field(Decimal("1e-6"), description="By how much it may differ.")
    relative: Annotated[Decimal, Field(ge=0, lt=1)] = Field(
        Decimal("1e-6"), description="Or by which share of what is expected."
    )

    def check(self, request: Request, answer: Answer) -> float | None:
        right = [value for one in expected(request) for value in _meant(one.strip())]
        if not right or calls_only(answer):
            return None
        return float(any(self._same(said, one) for said in last(answer.text) for one in right))

    def _same(self, said: Decimal, right: Decimal) -> bool:
        return abs(said - right) <= max(self.tolerance, self.relative * abs(right))


def boxed(text: str) -> list[str]:
    """What stands in \\boxed{…}."""
    return [match[1] for match in _BOXED.finditer(text[-MOST_CHARS:])]


def last(text: str) -> set[Decimal]:
    """Readings of the number in the last box, else behind the last ####, else of the last number there is."""
    end = text[-MOST_CHARS:]
    for marked in (boxed(end), [match[1] for match in _MARKED.finditer(end)]):
        if marked:
            end = marked[-1]
            break
    found = list(_NUMBER.finditer(_plain(end)))
    return readings(found[-1][0]) if found else set()


def readings(text: str) -> set[Decimal]:
    """The values that it may have: 1.234 is also a thousand and more, where people write it so. Empty: no number."""
    number = _plain(text).strip().strip("$€£¥%").strip()
    whole = _NUMBER.fullmatch(number)
    return set(_values(number)) if whole else set()


def _meant(text: str) -> set[Decimal]:
    """Of what a client expects, a plain number has one reading only."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return readings(text)
    return {value} if value.is_finite() else set()


def _plain(text: str) -> str:
    return str(_FRACTION.sub(r"\1/\2", text.translate(_SIGNS).translate(_DIGITS)))


def _values(number: str) -> Iterator[Decimal]:
    above, _, below = number.partition("/")
    for written in _written(above.strip()):
        try:
            value = Decimal(written) / Decimal(below.strip() or 1)
        except (InvalidOperation, DivisionByZero):
            continue
        if value.is_finite():
            yield value


def _written(number: str) -> Iterator[str]:
    yield number.replace(",", ".") if number.count(",") + number.count(".") == 1 else number
    match = _GROUPED.fullmatch(number)
    if match is not None:
        mark, fraction = match[1], match[2] or ""
        whole = number[: len(number) - len(fraction)].replace(mark, "")
        yield whole + fraction.replace(",", ".")
