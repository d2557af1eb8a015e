"""A crowd on a route that may ask twice: nobody spends what is not there, and every answer is paid for."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.gateway.running import Gateway, Reply, serving
from tests.gateway.school import (
    CHEAP,
    CHEAP_NANO,
    DEAR,
    DEAR_NANO,
    Pupil,
    able,
    expected,
    product,
    schooling,
    seat,
    weak,
)

PARALLEL = 200
LIMIT_NANO = 40_000_000
"""Of 200 second answers it pays for fifty."""


def policy(url: str) -> dict[str, Any]:
    strategy = {"kind": "cascade", "targets": ["cheap", "dear"], "accepts_right": 1, "accepts_wrong": 0}
    return {
        "version": 1,
        "targets": {"cheap": seat(url, "cheap", CHEAP, 0.8), "dear": seat(url, "dear", DEAR, 0.95)},
        "routes": {"auto": {"strategy": strategy, "failure_cost_usd": 1, "verifiers": [{"kind": "number"}]}},
        "budgets": [
            {"id": "day", "limit_usd": LIMIT_NANO / 1e9, "window": "day"},
            {"id": "ever", "limit_usd": 1, "window": "lifetime"},
        ],
    }


def test_two_hundred_cascades_spend_no_more_than_there_is(tmp_path: Path) -> None:
    with (
        schooling(cheap=Pupil(weak), dear=Pupil(able, slow_s=0.05)) as school,
        serving(tmp_path, policy(school.url)) as gateway,
    ):

        def ask(number: int) -> Reply:
            text = product(11 + number, 13)
            metadata = {"expected": expected(text)}
            return gateway.chat("auto", text, metadata=metadata, max_tokens=16, stream=number % 2 == 0)

        with ThreadPoolExecutor(PARALLEL) as crowd:
            replies = list(crowd.map(ask, range(PARALLEL)))
        given = Counter((reply.status, reply.headers.get("x-lowpass-model")) for reply in replies)
        assert set(given) <= {(200, "cheap"), (200, "dear"), (402, None)}
        assert given[200, "dear"] > 10
        check_rows(gateway, given)
        assert len(school.of("dear")) == given[200, "dear"]
        gateway.check_books()


def check_rows(gateway: Gateway, given: Counter[tuple[int, str | None]]) -> None:
    """Who got the dear answer has paid for both, who got the cheap one for that; nobody for what was not there."""
    spent = given[200, "dear"] * (CHEAP_NANO + DEAR_NANO) + given[200, "cheap"] * CHEAP_NANO
    (sums,) = gateway.rows(
        "SELECT count(*) AS number, sum(cost) AS cost, sum(state = 'held') AS open FROM requests WHERE route = 'auto'"
    )
    assert (sums["number"], sums["cost"], sums["open"]) == (PARALLEL, spent, 0)
    assert gateway.values("SELECT sum(cost) FROM attempts") == {(spent,)}
    assert gateway.values("SELECT spent, held FROM budget_windows") == {(spent, 0)}
    assert spent <= LIMIT_NANO
    passed_over = gateway.values("SELECT target, count(*) FROM attempts WHERE passed_over = 1 GROUP BY target")
    assert passed_over == {("cheap", given[200, "dear"])}
