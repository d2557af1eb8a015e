"""Sentences with gaps, and what fills them: presidio-evaluator's templates, and carriers of our own."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random

from msgspec import Struct

from bench.sensitivity.people import Person, companies, folder, nations, people
from bench.sensitivity.split import Split
from bench.sensitivity.values import Maker, Value
from bench.sensitivity.values.bank import iban
from bench.sensitivity.values.cards import card
from bench.sensitivity.values.draw import digits, mask
from bench.sensitivity.values.ids import ssn
from bench.sensitivity.values.net import email, ip
from bench.sensitivity.values.phones import phone

IDENTIFIERS: dict[str, tuple[str, Maker]] = {
    "credit_card_number": ("card", card),
    "iban": ("iban", iban),
    "email": ("email", email),
    "phone_number": ("phone", phone),
    "ssn": ("us_ssn", ssn),
    "ip_address": ("ip", ip),
}
"""Gap of a template → kind and maker."""
_GAP = re.compile(r"\{\{(\w+)\}\}")


class Planted(Struct, frozen=True):
    """A value in a text; offsets are characters."""

    kind: str
    start: int
    end: int
    notation: str = ""


class Text(Struct, frozen=True):
    """`context`: something in it says what the value is. `source`: whose sentence it is."""

    text: str
    planted: tuple[Planted, ...]
    context: bool = True
    source: str = "own"


@cache
def templates(split: Split) -> tuple[str, ...]:
    """Halved within those that have the same identifiers, so that each half has each kind."""
    lines = (folder() / "templates.txt").read_text("utf-8", "replace").splitlines()
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for line in lines:
        gaps = sorted({gap for gap in _GAP.findall(line) if gap in IDENTIFIERS})
        groups[tuple(gaps)].append(line.strip().replace("\\n", "\n").replace("\\,", ","))
    return tuple(line for group in groups.values() for line in group[split is Split.TEST :: 2])


def filled(template: str, fill: Callable[[str], tuple[str, Value]], source: str, context: bool = True) -> Text:
    """`fill` gives kind and value of a gap; a kind that is empty is not planted."""
    pieces: list[str] = []
    planted: list[Planted] = []
    at = length = 0
    for gap in _GAP.finditer(template):
        kind, value = fill(gap[1])
        before = template[at : gap.start()]
        start = length + len(before)
        pieces += (before, value.text)
        at, length = gap.end(), start + len(value.text)
        if kind:
            planted.append(Planted(kind, start, length, value.notation))
    return Text("".join((*pieces, template[at:])), tuple(planted), context, source)


def presidio(split: Split, draw: Random, lines: Sequence[str]) -> Iterator[Text]:
    """Endlessly: the lines in turn."""
    while True:
        for line in lines:
            fill = Gaps(split, draw)
            yield filled(line, fill, "presidio-evaluator")


class Gaps:
    """Fills the gaps of one template, each from another person. The notation of what is no identifier is its gap."""

    def __init__(self, split: Split, draw: Random) -> None:
        self._split, self._draw = split, draw

    def __call__(self, gap: str) -> tuple[str, Value]:
        if gap in IDENTIFIERS:
            kind, maker = IDENTIFIERS[gap]
            return kind, maker(self._draw)
        kind, write = _OTHERS[gap]
        if gap in ("organization", "company") and self._draw.random() < 0.7:
            return kind, Value(self._draw.choice(companies(self._split)), gap)
        return kind, Value(write(self._draw.choice(people(self._split)), self._draw), gap)


def _address(person: Person, draw: Random) -> str:
    return draw.choice(
        (
            f"{person.street}, {person.city}, {person.country}",
            f"{person.street}\n{person.city}, {person.state_code} {person.postcode}",
            f"{person.street} {_flat(person, draw)} {person.city} {person.state}",
            f"{person.street}\n{_flat(person, draw)}\n{person.city}\n{person.country} {person.postcode}",
        )
    )


def _flat(_: Person, draw: Random) -> str:
    return mask(draw, draw.choice(("Apt. xxx", "Suite xxx", "Flat N")))


def _number(_: Person, draw: Random) -> str:
    return str(draw.randrange(1, 999))


def _nation(form: str) -> Callable[[Person, Random], str]:
    return lambda person, draw: draw.choice(nations())[form].title()


_OTHERS: dict[str, tuple[str, Callable[[Person, Random], str]]] = {
    **dict.fromkeys(("person", "name", "name_male", "name_female"), ("person", lambda one, draw: one.name)),
    **dict.fromkeys(
        ("first_name", "first_name_male", "first_name_female", "first_name_nonbinary"),
        ("person", lambda one, draw: one.first),
    ),
    **dict.fromkeys(("last_name", "last_name_male", "last_name_female"), ("person", lambda one, draw: one.last)),
    **dict.fromkeys(("prefix", "prefix_male", "prefix_female"), ("", lambda one, draw: one.title)),
    "address": ("address", _address),
    "city": ("location", lambda one, draw: one.city),
    "country": ("location", lambda one, draw: one.country),
    "street_name": ("address", lambda one, draw: re.sub(r"[\d/.-]+\w?$|^\d+", "", one.street).strip()),
    "secondary_address": ("", _flat),
    "building_number": ("", _number),
    "state_abbr": ("", lambda one, draw: one.state_code),
    **dict.fromkeys(("zipcode", "postcode"), ("", lambda one, draw: one.postcode)),
    "organization": ("organisation", lambda one, draw: one.company),
    "url": ("", lambda one, draw: f"https://www.{one.domain}/"),
    "date_of_birth": ("birth_date", lambda one, draw: one.birthday),
    "date_time": ("", lambda one, draw: f"{draw.randrange(1, 29)} March {draw.randrange(1990, 2027)}"),
    "day_of_week": ("", lambda one, draw: draw.choice(("Monday", "Tuesday", "Friday", "Sunday"))),
    "year": ("", lambda one, draw: str(draw.randrange(1930, 2027))),
    "age": ("", lambda one, draw: one.age),
    "job": ("", lambda one, draw: one.job),
    "us_driver_license": ("", lambda one, draw: f"{mask(draw, 'A')}{digits(draw, 7)}"),
    "nationality": ("", _nation("nationality")),
    "nation_woman": ("", _nation("woman")),
    "nation_plural": ("", _nation("plural")),
}
"""Gap → the kind that is planted, empty for none, and how it is written."""
