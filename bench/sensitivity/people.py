"""Invented people and real names of companies, from the tables that presidio-evaluator ships."""

import csv
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from bench.sensitivity.split import Split


class SetsMissing(Exception):
    """The package with sentences and people is not installed."""


class Person(NamedTuple):
    first: str
    last: str
    female: bool
    title: str
    street: str
    city: str
    state: str
    state_code: str
    postcode: str
    country: str
    birthday: str
    age: str
    job: str
    company: str
    domain: str

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"


def folder() -> Path:
    """Located, not imported: its imports want a stack of their own. Raises SetsMissing."""
    found = find_spec("presidio_evaluator")
    if found is None or not found.submodule_search_locations:
        raise SetsMissing("presidio-evaluator is not installed: `make test` installs the dev requirements")
    return Path(found.submodule_search_locations[0]) / "data_generator" / "raw_data"


@cache
def people(split: Split) -> tuple[Person, ...]:
    rows = _rows("FakeNameGenerator.com_3000.csv")
    return tuple(_person(row) for row in rows[split is Split.TEST :: 2])


@cache
def companies(split: Split) -> tuple[str, ...]:
    return tuple(
        row["organization"] for row in _rows("companies_and_organizations.csv", "\t")[split is Split.TEST :: 2]
    )


@cache
def nations() -> tuple[dict[str, str], ...]:
    return tuple(_rows("nationalities.csv"))


def _rows(name: str, delimiter: str = ",") -> list[dict[str, str]]:
    with (folder() / name).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def _person(row: dict[str, str]) -> Person:
    return Person(
        first=row["GivenName"],
        last=row["Surname"],
        female=row["Gender"] == "female",
        title=row["Title"],
        street=row["StreetAddress"],
        city=row["City"],
        state=row["StateFull"],
        state_code=row["State"],
        postcode=row["ZipCode"],
        country=row["CountryFull"],
        birthday=row["Birthday"],
        age=row["Age"],
        job=row["Occupation"],
        company=row["Company"],
        domain=row["Domain"],
    )
