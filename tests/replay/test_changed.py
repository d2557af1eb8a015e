"""What other policies would have made of the same traffic."""

from pathlib import Path
from typing import Any

import pytest

from router.ledger.ledger import SqliteLedger
from router.replay import Replayed, as_report, replay
from router.replay.replayed import Effect
from tests.gateway.running import Gateway, ordered
from tests.gateway.school import CHEAP_NANO, DEAR_NANO
from tests.replay.traffic import EACH, MAIL, Policy, changed, config

TINY = {"input": 0.001, "output": 0.002}


@pytest.fixture
def tried(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> Any:
    """Replays a change of the policy that was in force, compared with it."""

    def attempt(change: Any) -> Replayed:
        return replay(past, changed(recorded, change, tmp_path), others=[config(recorded)])

    return attempt


def of(found: Replayed, route: str) -> Effect:
    return next(effect for effect in found.routes if effect.route == route)


def codes(found: Replayed) -> dict[str, int]:
    return {one.code: one.count for one in found.unknown}


def to(found: Replayed, target: str, data_class: str = "") -> tuple[int, int]:
    """Requests of a class that went there, and that would."""
    rows = [one for one in found.egress if one.target == target and data_class in ("", one.data_class)]
    return sum(one.before for one in rows), sum(one.after for one in rows)


def test_a_vendor_vanishes(recorded: Gateway, tried: Any) -> None:
    def without(rows: Policy) -> None:
        del rows["targets"]["dear"], rows["routes"]["lowered"], rows["routes"]["auto"]["judge"]
        rows["budgets"] = [one for one in rows["budgets"] if one["id"] != "small"]
        for name in ("auto", "checked", "voted", "planned", "cheap-first", "fixed"):
            strategy = rows["routes"][name]["strategy"]
            strategy["targets"] = [one if one != "dear" else "home" for one in strategy["targets"]]
            strategy["targets"] = list(dict.fromkeys(strategy["targets"]))
        del rows["routes"]["shared"]["strategy"]["weights"]["dear"]

    found = tried(without)
    assert to(found, "dear")[0] > 0
    assert to(found, "dear")[1] == 0
    assert found.total.cost.value < 0
    assert found.total.passes.value < 0
    pinned = of(found, "dear")
    assert (pinned.refusals.value, pinned.cost.value) == (1, -DEAR_NANO)
    assert {shift.move.why for shift in found.shifts if shift.move.before == "dear" and not shift.move.after} == {
        "the policy has no such route, or the key may not name it"
    }
    assert not any(shift.move.route == "cheap-first" and shift.move.after for shift in found.shifts)


def test_a_stricter_class(recorded: Gateway, tried: Any) -> None:
    """Personal data may be redacted no more: only the target in the EU may see it."""

    def strict(rows: Policy) -> None:
        rows["sensitivity"]["classes"]["personal"] = {"regions": ["eu"]}
        rows["targets"]["home"]["region"] = "us"

    asked = recorded.rows("SELECT id FROM requests WHERE data_class = 'personal' AND route <> 'judge'")
    assert len(asked) == 3
    found = tried(strict)
    redacted = [one for one in found.egress if one.redacted]
    assert sum(one.before for one in redacted) > 0
    assert not any(one.after for one in redacted)
    assert to(found, "dear", "personal")[1] >= 1
    assert of(found, "cheap-first").changed == 1


def test_a_class_that_is_blocked_is_refused(tried: Any) -> None:
    found = tried(lambda rows: rows["sensitivity"]["classes"].update(personal={"block": True}))
    assert found.total.refusals.value == 3
    assert {shift.move.after for shift in found.shifts} == {""}
    assert found.total.cost.value == -sum(-one.cost for one in found.decisions) < 0
    assert all(shift.move.why.endswith("data_class: class personal may not be sent anywhere") for shift in found.shifts)


def test_a_cheaper_target_that_was_never_asked(recorded: Gateway, tried: Any) -> None:
    def cheaper(rows: Policy) -> None:
        new = rows["targets"]["new"] = {**rows["targets"]["cheap"]}
        new["model"] = {**new["model"], "name": "new", "price": TINY}
        rows["routes"]["cheap-first"]["strategy"]["targets"].append("new")

    found = tried(cheaper)
    effect = of(found, "cheap-first")
    assert effect.changed == codes(found)["never_asked"] > EACH
    assert -effect.spent < effect.cost.value < 0
    assert effect.cost.low <= effect.cost.value <= effect.cost.high <= 0
    (shift,) = [shift for shift in found.shifts if shift.move.before == "cheap"]
    assert (shift.move.after, shift.move.why) == ("new", "cheapest")
    assert found.decisions[0].move.route == "cheap-first"


def test_expected_costs_are_what_answers_did_cost(tried: Any) -> None:
    """Both targets have answered often enough: the prices of their real answers, not the model's idea of them."""
    found = tried(lambda rows: rows["routes"]["fixed"]["strategy"]["targets"].reverse())
    effect = of(found, "fixed")
    each = effect.cost.value / effect.changed
    known = {one.target: one for one in found.calibrated}
    assert known["cheap"].answers >= 30
    assert each == pytest.approx(CHEAP_NANO - DEAR_NANO, rel=0.02)
    assert effect.passes.value < 0


def test_budgets_are_played_in_the_order_of_time(recorded: Gateway, tried: Any) -> None:
    """All that comes after the limit is refused, and costs nothing: that much is exact."""
    limit = 10 * DEAR_NANO
    found = tried(lambda rows: rows["budgets"].append({"id": "less", "limit_usd": limit / 1e9, "window": "lifetime"}))
    rows = recorded.rows("SELECT id, cost, target FROM requests WHERE route <> 'judge' ORDER BY id")
    spent, kept = 0, 0
    for row in rows:
        if spent < limit:
            spent, kept = spent + row["cost"], kept + 1
    assert found.total.cost.value == spent - found.total.spent
    assert {shift.move.why for shift in found.shifts} == {"budget less is used up"}
    stopped = [row for row in rows[kept:] if row["cost"] or row["target"]]
    assert found.total.refusals.value == found.total.changed
    assert len(stopped) <= found.total.changed <= len(stopped) + 1
    assert codes(found)["passes"] == found.total.changed
    assert {one.id for one in found.decisions} <= {row["id"] for row in rows[kept:]}


def test_a_budget_that_sends_elsewhere_refuses_nobody(tried: Any) -> None:
    budget = {"id": "less", "limit_usd": 0.000001, "window": "lifetime", "exhausted": {"downgrade": "cheap-first"}}
    found = tried(lambda rows: rows["budgets"].append({**budget, "routes": ["fixed"]}))
    assert found.total.changed == 0
    assert codes(found)["downgraded"] > 0


def test_whoever_was_refused_and_would_be_served_was_never_seen(tried: Any) -> None:
    """A secret, on a route of remote targets only."""
    found = tried(lambda rows: rows["routes"]["fixed"]["strategy"]["targets"].append("home"))
    effect = of(found, "fixed")
    assert (effect.refused, effect.refusals.value, effect.changed, codes(found)["unseen"]) == (1, -1, 1, 1)
    assert effect.cost.value > 0
    assert effect.passes.value > 0
    (shift,) = found.shifts
    assert (shift.move.before, shift.move.after, shift.move.why) == ("", "home", "a target may serve it")


def test_a_route_that_is_gone_refuses_what_named_it(tried: Any) -> None:
    found = tried(lambda rows: rows["routes"].pop("voted"))
    effect = of(found, "voted")
    assert (effect.refusals.value, effect.changed) == (EACH, EACH)
    assert effect.cost.value == -effect.spent
    assert found.decisions[0].move.after == ""


def test_a_pair_is_valued_by_the_chance_that_its_second_is_asked(tried: Any) -> None:
    """A cascade in place of the dear target alone: cheap answers, and dear ones where the check says no."""

    def pair(rows: Policy) -> None:
        rows["routes"]["fixed"] = {**rows["routes"]["checked"]}

    found = tried(pair)
    effect = of(found, "fixed")
    pairs = {shift.move.after for shift in found.shifts}
    assert "cheap + dear" in pairs
    assert -effect.spent < effect.cost.value < 0
    before, after = to(found, "cheap")
    assert after > before


def test_a_failure_is_not_played_again(tried: Any) -> None:
    found = tried(lambda rows: rows["routes"].update(failing=ordered("home")))
    assert (found.total.changed, codes(found)["unanswered"]) == (0, 1)
    assert found.total.cost.value == 0


def test_classes_that_a_policy_lacks_are_all_classes(tried: Any) -> None:
    """Fail closed: nobody knows where such data may go."""

    def lacking(rows: Policy) -> None:
        del rows["sensitivity"]["classes"]["personal"]
        rows["sensitivity"]["detectors"] = [{"kind": "secrets", "class": "secret"}]

    found = tried(lacking)
    assert codes(found)["class"] == 3
    places = {one.target for one in found.egress if one.data_class == "personal" and one.after}
    assert places == {"home"}
    assert codes(found)["detectors"] == found.total.requests


def test_the_report_says_all_of_it(tried: Any) -> None:
    report = as_report(tried(lambda rows: rows["routes"]["fixed"]["strategy"]["targets"].reverse()))
    assert [one.name for one in report.below] == ["changes", "decisions", "egress", "calibration", "unknown"]
    assert MAIL not in str(report)
