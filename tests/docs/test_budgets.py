"""docs/budgets.md: its numbers are those of the code."""

from importlib import import_module

import pytest

from tests.docs import page, rows

NUMBERS = rows(page("docs/budgets.md"), "what", "value", "constant")


@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row["constant"])
def test_numbers(row: dict[str, str]) -> None:
    name, _, path = row["constant"].partition(" in ")
    module = import_module(path.removesuffix(".py").replace("/", "."))
    assert float(row["value"].replace(",", "")) == getattr(module, name)


def test_there_are_numbers() -> None:
    assert NUMBERS
