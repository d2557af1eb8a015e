"""Every kind of price, to the nano-dollar, against hand calculation."""

import re

import pytest

from router.estimate.price import charge
from router.types.price import CostSource
from tests.prices.golden import CASES, CATALOG, LISTS, Case, price


def name(case: object) -> str:
    return case.id if isinstance(case, Case) else ""


def test_the_table_is_large_and_broad() -> None:
    assert len(CASES) >= 150
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({case.price.split("/")[0] for case in CASES} - set(LISTS)) >= 17
    named = {match[0] for case in CASES if (match := re.match(r"U\d+", case.id))}
    assert named >= {f"U{number}" for number in (1, 2, 3, 4, 5, 8, 10, 11, 12, 14, 18, 19, 20, 22)}
    assert {case.price for case in CASES} <= {*LISTS, *CATALOG.models}


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_figure_is_the_sum_of_its_terms(case: Case) -> None:
    assert case.nano == case.by_hand


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_engine_agrees(case: Case) -> None:
    usage = case.read()
    cost = charge(price(case.price), usage, at_ms=case.at_ms, took_ms=case.took_ms)
    assert cost.own == case.nano
    assert cost.nano == (case.nano if case.stated is None else case.stated)
    assert cost.flagged == case.flagged
    stated = case.stated is not None or usage.provider_cost is not None
    assert cost.source is (CostSource.PROVIDER if stated else CostSource.PRICED)
