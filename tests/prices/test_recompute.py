"""History can be priced again from the ledger and the catalog alone, to the nano-dollar."""

import sqlite3
from pathlib import Path

from router.estimate.price import charge
from router.ledger.attempt_row import INSERT, attempt_row
from router.ledger.ledger import Ledger, ledger_at
from router.report.recompute import Changed, recompute
from router.types.attempt import Attempt
from router.types.target import Target
from tests.ledger.plain import put, request
from tests.prices.golden import CASES, CATALOG, LISTS, Case, price

HISTORY = {**CATALOG.prices} | {f"golden/{name}": {found.version: found} for name, found in LISTS.items()}


def attempt(case: Case) -> Attempt:
    usage = case.read()
    model, provider = CATALOG.models["local/smollm2-135m-instruct" if case.price in LISTS else case.price]
    if case.price in LISTS:
        model = type(model)(
            id=f"golden/{case.price}",
            name="m",
            context=1,
            max_output=1,
            capabilities=frozenset(),
            price=price(case.price),
        )
    target = Target(id="t", model=model, provider=CATALOG.providers[provider], base_url="")
    cost = charge(model.price, usage, at_ms=case.at_ms, took_ms=case.took_ms, region=target.region)
    return Attempt(
        target=target, outcome="ok", started_ms=case.at_ms, total_ms=case.took_ms, status=200, usage=usage, cost=cost
    )


def filled(tmp_path: Path) -> Ledger:
    ledger = ledger_at(tmp_path / "lowpass.db", None)
    ledger.migrate()
    put(ledger, "requests", **request("r"))
    with ledger.writing() as connection:
        for number, case in enumerate(CASES):
            connection.execute(INSERT, attempt_row("r", number, attempt(case)))
    return ledger


def test_every_row_is_priced_again_at_what_it_was_charged(tmp_path: Path) -> None:
    found = recompute(filled(tmp_path), HISTORY)
    assert (found.attempts, found.elsewhere, found.changed) == (len(CASES), 0, ())


def test_a_row_that_was_changed_is_found(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    with ledger.writing() as connection:
        connection.execute("UPDATE attempts SET output_visible = output_visible + 1 WHERE number = 0")
        connection.execute("UPDATE attempts SET price_version = 'policy 0123' WHERE number = 1")
    found = recompute(ledger, HISTORY)
    [changed] = found.changed
    assert isinstance(changed, Changed)
    assert (changed.number, changed.recorded) == (0, CASES[0].nano)
    assert changed.computed > changed.recorded
    assert found.elsewhere == 1


def test_a_row_of_the_ledger_s_first_form_is_priced_by_its_table(tmp_path: Path) -> None:
    """Before it had columns for all that a price may depend on."""
    ledger = ledger_at(tmp_path / "lowpass.db", None)
    ledger.migrate()
    put(ledger, "requests", **request("r"))
    version = "litellm 1.109.1 and genai-prices 0.2.3 2026-11-21"
    with sqlite3.connect(tmp_path / "lowpass.db") as connection:
        connection.execute(
            "INSERT INTO attempts (request_id, number, target, model, provider, model_served, outcome, finish_reason,"
            " answered, thinking, started_ms, total_ms, input_uncached, cache_read, cache_write, cache_write_1h,"
            " input_audio, output_visible, output_audio, usage_source, reasoning_source, violations, cost, cost_source,"
            " price_version) VALUES ('r', 1, 't', 'openai/gpt-6.1-sol', 'openai', '', 'ok', 'stop', 1, 'none', 0, 1,"
            " 300000, 0, 0, 0, 0, 10, 0, 'reported', 'unknown', '', ?, 'priced', ?)",
            (300_000 * 2_000 + 10 * 10_000, version),
        )
    found = recompute(ledger, HISTORY)
    assert (found.attempts, found.elsewhere, found.changed) == (1, 0, ())
