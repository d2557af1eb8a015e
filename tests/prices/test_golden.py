"""Every kind of price, to the nano-dollar, against hand calculation (golden.yaml); and priced again from the ledger."""

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Raw, Struct
from msgspec.structs import replace

from adapters.anthropic import TOKENS as ANTHROPIC_TOKENS
from adapters.anthropic import usage as anthropic_usage
from adapters.catalog import Loader, shipped
from adapters.gemini import TOKENS as GEMINI_TOKENS
from adapters.gemini import usage as gemini_usage
from adapters.usage import canonical, counters
from adapters.usage import read as read_report
from router.config.policy import PriceRow
from router.estimate.price import charge
from router.ledger.ledger import Ledger, ledger_at
from router.ledger.write import INSERT, attempt_row
from router.report.recompute import recompute
from router.types.attempt import Attempt, Usage
from router.types.price import CostSource, Price
from router.types.target import Target
from tests.ledger.plain import put, request
from tests.tables import each_row

CATALOG = shipped()
EACH = "$"
_JSON = msgspec.json.Encoder(decimal_format="number")


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    price: str
    usage: dict[str, Any] | None = None
    wire: str = ""
    report: dict[str, Any] | None = None
    at: datetime
    took_ms: int = 0
    terms: str
    times: str = "1"
    nano: int
    stated: int | None = None
    flagged: bool = False

    @property
    def at_ms(self) -> int:
        return int(self.at.replace(tzinfo=UTC).timestamp() * 1000)

    @property
    def by_hand(self) -> int:
        """The terms in nano-USD."""
        terms = self.terms.split(" + ")
        tokens = sum(_product(term) for term in terms if not term.endswith(EACH)) * _product(self.times)
        units = sum(_product(term.removesuffix(EACH)) for term in terms if term.endswith(EACH))
        return int((tokens * 1_000 + units * 10**9).to_integral_value(ROUND_HALF_UP))

    def read(self) -> Usage:
        """The usage, or what the wire's reader makes of the report."""
        if self.usage is not None:
            return Usage(**self.usage)
        return READERS[self.wire](Raw(_JSON.encode(self.report)))


def _product(text: str) -> Decimal:
    return prod(map(Decimal, text.split("*")), start=Decimal(1))


def _reader(tokens: Callable[[Raw], Any], usage: Callable[[Any], Usage]) -> Callable[[Raw], Usage]:
    def read(raw: Raw) -> Usage:
        reported = tokens(raw)
        assert reported is not None
        return usage(reported)

    return read


READERS = {"openai": _reader(read_report, canonical), "gemini": _reader(partial(counters, GEMINI_TOKENS), gemini_usage)}
READERS["anthropic"] = _reader(partial(counters, ANTHROPIC_TOKENS), anthropic_usage)
_TABLE = yaml.load((Path(__file__).parent / "golden.yaml").read_text("utf-8"), Loader=Loader)  # noqa: S506
LISTS = {name: PriceRow.model_validate(row).price(f"golden {name}") for name, row in _TABLE["prices"].items()}
CASES = msgspec.convert(_TABLE["cases"], list[Case], strict=False)


def price(name: str) -> Price:
    if name in LISTS:
        return LISTS[name]
    found = CATALOG.models[name][0].price
    assert found is not None
    return found


@each_row("case", CASES, ids=lambda case: case.id)
def test_the_figure_is_the_sum_of_its_terms_and_the_engine_agrees(case: Case) -> None:
    assert case.nano == case.by_hand
    usage = case.read()
    cost = charge(price(case.price), usage, at_ms=case.at_ms, took_ms=case.took_ms)
    assert cost.own == case.nano
    assert cost.nano == (case.nano if case.stated is None else case.stated)
    assert cost.flagged == case.flagged
    stated = case.stated is not None or usage.provider_cost is not None
    assert cost.source is (CostSource.PROVIDER if stated else CostSource.PRICED)


HISTORY = {**CATALOG.prices} | {f"golden/{name}": {found.version: found} for name, found in LISTS.items()}


def attempt(case: Case) -> Attempt:
    usage = case.read()
    model, provider = CATALOG.models["local/smollm2-135m-instruct" if case.price in LISTS else case.price]
    if case.price in LISTS:
        model = replace(model, id=f"golden/{case.price}", price=price(case.price))
    target = Target(id="t", model=model, provider=CATALOG.providers[provider], base_url="")
    cost = charge(model.price, usage, at_ms=case.at_ms, took_ms=case.took_ms, region=target.region)
    when: dict[str, Any] = {"started_ms": case.at_ms, "total_ms": case.took_ms}
    return Attempt(target=target, outcome="ok", status=200, usage=usage, cost=cost, **when)


def empty(folder: Path) -> Ledger:
    ledger = ledger_at(folder / "lowpass.db", None)
    ledger.migrate()
    put(ledger, "requests", **request("r"))
    return ledger


def test_every_row_is_priced_again_at_what_it_was_charged_and_a_changed_one_found(tmp_path: Path) -> None:
    ledger = empty(tmp_path)
    with ledger.writing() as connection:
        for number, case in enumerate(CASES):
            connection.execute(INSERT, attempt_row("r", number, attempt(case)))
    found = recompute(ledger, HISTORY)
    assert (found.attempts, found.elsewhere, found.changed) == (len(CASES), 0, ())
    with ledger.writing() as connection:
        connection.execute("UPDATE live_attempts SET output_visible = output_visible + 1 WHERE number = 0")
        connection.execute("UPDATE live_attempts SET price_version = 'policy 0123' WHERE number = 1")
    found = recompute(ledger, HISTORY)
    [changed] = found.changed
    assert (changed.number, changed.recorded, found.elsewhere) == (0, CASES[0].nano, 1)
    assert changed.computed > changed.recorded


def test_a_row_of_the_ledger_s_first_form_is_priced_by_its_table(tmp_path: Path) -> None:
    """Before it had columns for all that a price may depend on."""
    ledger = empty(tmp_path)
    version = "litellm 1.109.1 and genai-prices 0.2.3 2026-11-21"
    with sqlite3.connect(tmp_path / "lowpass.db") as connection:
        connection.execute(
            "INSERT INTO live_attempts (request_id, number, target, model, provider, model_served, outcome,"
            " finish_reason, answered, thinking, started_ms, total_ms, input_uncached, cache_read, cache_write,"
            " cache_write_1h, input_audio, output_visible, output_audio, usage_source, reasoning_source, violations,"
            " cost, cost_source, price_version) VALUES ('r', 1, 't', 'openai/gpt-6.1-sol', 'openai', '', 'ok', 'stop',"
            " 1, 'none', 0, 1, 300000, 0, 0, 0, 0, 10, 0, 'reported', 'unknown', '', ?, 'priced', ?)",
            (300_000 * 2_000 + 10 * 10_000, version),
        )
    found = recompute(ledger, HISTORY)
    assert (found.attempts, found.elsewhere, found.changed) == (1, 0, ())
