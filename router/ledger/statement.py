"""What a provider billed, by day and model: the files that customers can download, as `Billed` lines."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files

import msgspec
import yaml
from msgspec import Struct

from router.types.money import NANO_PER_USD

DAY_S = 86_400
_PREAMBLE = 20
"""Lines before the header, at most: Google's begin with the account."""
_DATED = re.compile(r"([-@_](19|20)\d{2}-?\d{2}-?\d{2}|-\d{4}-\d{2})$")
"""The date at the end of a snapshot's name."""
_WORD = re.compile(r"[a-z]+|\d+")


class Form(Struct, frozen=True):
    """One kind of file; see `data/statements.yaml`."""

    name: str
    day: tuple[str, ...]
    cost: tuple[str, ...]
    currency: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    item: tuple[str, ...] = ()
    contains: bool = False


class Billed(Struct, frozen=True):
    """One line: days since 1970 (UTC), what was billed, and nano-USD."""

    day: int
    model: str
    """As the provider names it; empty: the line names none."""
    item: str
    nano: int
    rounding: int
    """nano-USD that the amount may be off by: half of its last decimal."""
    contains: bool = False


class StatementError(ValueError):
    """The file can't be used: which line, and what to do."""


def read(lines: Sequence[str]) -> tuple[str, list[Billed]]:
    """The name of the form, and all lines that have an amount. Raises `StatementError`, with all mistakes."""
    for at, header in enumerate(csv.reader(lines[:_PREAMBLE])):
        names = [name.strip().lower().lstrip("\ufeff") for name in header]
        form = next((form for form in _known().forms if _fits(form, names)), None)
        if form is not None:
            return form.name, _billed(form, names, lines[at + 1 :], at + 2)
    known = "; ".join(f"{form.name}: {_wanted(form)}" for form in _known().forms)
    raise StatementError(f"line 1: these are the columns of no export that is known. Known: {known}")


class _Statements(Struct, frozen=True):
    """`data/statements.yaml`."""

    forms: tuple[Form, ...]
    fees: tuple[str, ...]


@cache
def _known() -> _Statements:
    text = files("router.ledger").joinpath("data", "statements.yaml").read_text("utf-8")
    return msgspec.convert(yaml.load(text, Loader=yaml.CSafeLoader), _Statements)


def is_fee(item: str) -> bool:
    """It is billed beside the tokens of a model."""
    return any(word in item.lower() for word in _known().fees)


def _fits(form: Form, names: Sequence[str]) -> bool:
    needed = (form.day, form.cost, form.currency, form.model, form.item)
    return all(any(name in names for name in some) for some in needed if some)


def _wanted(form: Form) -> str:
    needed = (form.day, form.cost, form.currency, form.model, form.item)
    return ", ".join(" or ".join(some) for some in needed if some)


def _billed(form: Form, names: Sequence[str], lines: Sequence[str], first: int) -> list[Billed]:
    billed, mistakes = [], []
    for number, cells in enumerate(csv.reader(lines), first):
        row = dict(zip(names, cells, strict=False))
        if not any(cells) or not _cell(row, form.cost):
            continue
        try:
            billed.append(_line(form, row))
        except ValueError as error:
            mistakes.append(f"line {number}: {error}")
    if mistakes:
        more = f"; and {len(mistakes) - 10} more" if len(mistakes) > 10 else ""
        raise StatementError("; ".join(mistakes[:10]) + more)
    if not billed:
        raise StatementError(f"the file has no line with an amount ({form.name})")
    return billed


def _line(form: Form, row: Mapping[str, str]) -> Billed:
    currency = _cell(row, form.currency)
    if currency and currency.lower() != "usd":
        raise ValueError(f"the currency is '{currency[:10]}': the ledger is in USD, so convert the file or export USD")
    item = _cell(row, form.item)
    model = _cell(row, form.model) or ("" if form.contains else item.partition(",")[0].strip())
    nano, rounding = _amount(_cell(row, form.cost))
    return Billed(_day(_cell(row, form.day)), model, item, nano, rounding, form.contains)


def _cell(row: Mapping[str, str], names: Iterable[str]) -> str:
    return next((row[name].strip() for name in names if row.get(name, "").strip()), "")


def _day(text: str) -> int:
    if text.isdigit() and len(text) > 8:
        return int(text) // DAY_S
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{text[:30]}' is no date, such as 2026-11-24") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) // DAY_S


def _amount(text: str) -> tuple[int, int]:
    try:
        amount = Decimal(text.replace(",", "").lstrip("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or abs(amount) > 10**9:
        raise ValueError(f"'{text[:30]}' is no amount")
    exponent = amount.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - it is finite
    return round(amount * NANO_PER_USD), int(NANO_PER_USD * Decimal(1).scaleb(exponent) / 2)


def words(model: str) -> Counter[str]:
    """What tells models apart: `claude-haiku-4-5-20251001` and `Claude Haiku 4.5` are the same."""
    return Counter(_WORD.findall(_DATED.sub("", model.strip().lower().rpartition("/")[2])))


def model_of(line: Billed, models: Mapping[str, str]) -> str | None:
    """Which of the ledger's models a line is about. `models`: names that the ledger has → model."""
    if line.contains:
        said = words(line.item)
        inside = [name for name in models if words(name) <= said]
        longest = max(inside, key=lambda name: words(name).total(), default=None)
        return None if longest is None else models[longest]
    same = (model for name, model in models.items() if line.model and words(name) == words(line.model))
    return next(same, None)
