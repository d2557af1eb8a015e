"""A policy over its own traffic changes nothing, to the nano-dollar."""

from collections import Counter
from pathlib import Path

import msgspec

from router.ledger.facts.query import Where
from router.ledger.ledger import SqliteLedger
from router.replay import Replayed, as_report, replay
from router.replay.replayed import Change
from tests.gateway.running import Gateway
from tests.replay.traffic import ROUTES, changed, config

NOTHING = Change()


def unchanged(found: Replayed) -> bool:
    effects = (found.total, *found.routes)
    return not found.shifts and all(
        (each.changed, each.cost, each.passes, each.refusals) == (0, NOTHING, NOTHING, NOTHING) for each in effects
    )


def test_the_same_policy_changes_nothing(recorded: Gateway, past: SqliteLedger) -> None:
    found = replay(past, config(recorded))
    assert unchanged(found)
    assert {*ROUTES, "lowered", "closed", "dear"} - {"lowered"} <= {effect.route for effect in found.routes}
    assert all(place.before == place.after for place in found.egress)


def test_what_was_spent_is_what_the_ledger_says(recorded: Gateway, past: SqliteLedger) -> None:
    found = replay(past, config(recorded))
    (booked,) = recorded.rows("SELECT SUM(cost) AS cost, COUNT(*) AS requests FROM requests WHERE route <> 'judge'")
    assert (found.total.spent, found.total.requests) == (booked["cost"], booked["requests"])
    assert sum(effect.spent for effect in found.routes) == booked["cost"]


def test_what_was_learned_since_is_no_merit_of_a_policy(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> None:
    """A change that decides nothing, compared with the policy that was in force."""
    again = changed(recorded, lambda rows: rows["targets"]["dear"].update(timeouts={"total_ms": 599_000}), tmp_path)
    assert again.hash != config(recorded).hash
    assert unchanged(replay(past, again, others=[config(recorded)]))


def test_alone_it_says_that_it_can_not_tell(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> None:
    again = changed(recorded, lambda rows: rows["targets"]["dear"].update(timeouts={"total_ms": 599_000}), tmp_path)
    found = replay(past, again)
    assert {one.code: one.count for one in found.unknown}["other_policy"] == found.total.requests


def test_routes_that_did_not_change_are_not_touched(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> None:
    again = changed(recorded, lambda rows: rows["routes"]["fixed"]["strategy"]["targets"].reverse(), tmp_path)
    found = replay(past, again, others=[config(recorded)])
    assert {shift.move.route for shift in found.shifts} == {"fixed"}
    assert found.total.changed == sum(effect.changed for effect in found.routes if effect.route == "fixed") > 0


def test_several_processes_find_the_same(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> None:
    changed(recorded, lambda rows: rows["routes"]["fixed"]["strategy"]["targets"].reverse(), tmp_path)
    options = ("--policy", str(tmp_path / "new.yaml"), "--against", str(recorded.policy), "--json")
    one, two = (recorded.lowpass("replay", *options, "--processes", number) for number in ("1", "2"))
    assert one == two
    assert one[0] == 0
    assert msgspec.json.decode(one[1])["totals"]["changed"] > 0


def test_only_what_was_asked_for(recorded: Gateway, past: SqliteLedger) -> None:
    same = config(recorded)
    whole, some = replay(past, same), replay(past, same, where=[Where("route", frozenset({"fixed", "auto"}))])
    of = {effect.route: effect for effect in whole.routes}
    assert some.routes == (of["auto"], of["fixed"])
    began = recorded.rows("SELECT MAX(started_ms) AS last FROM requests")[0]["last"]
    late = replay(past, same, since_ms=began + 1)
    assert (late.total.requests, late.total.spent) == (0, 0)
    early = replay(past, same, until_ms=began)
    assert 0 < early.total.requests <= whole.total.requests


def test_totals_are_the_sum_of_the_rows(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> None:
    again = changed(
        recorded, lambda rows: rows["routes"]["cheap-first"]["strategy"]["targets"].remove("cheap"), tmp_path
    )
    report = as_report(replay(past, again, others=[config(recorded)]))
    for name in ("requests", "changed", "spent_usd", "refused"):
        assert sum(report.column(name)) == report.total(name)  # type: ignore[arg-type]
    reasons = Counter(report.column("cost_is"))
    assert reasons == {"observed": len(report.rows) - 1, "expected": 1}
