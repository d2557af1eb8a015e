"""What other policies would have made of the same traffic, to the nano-dollar; `lowpass replay` as users get it wrong,
and as docs/replay.md says."""

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.ledger.facts import LabelFilter
from router.ledger.ledger import SqliteLedger
from router.replay.estimate import TEXTS, Change, Effect
from router.replay.read import NO_TARGET
from router.replay.replay import DIMENSIONS, NAME, Replayed, as_report, replay, verdict
from router.report.report import columns
from router.testing import lowpass
from router.types.decision import RequestProfile
from tests.docs import ROOT, blocks, page, quoted, rows
from tests.gateway.running import Gateway, ordered
from tests.gateway.school import CHEAP_NANO, DEAR_NANO, OUTPUT
from tests.replay.traffic import EACH, MAIL, ROUTES, Policy, changed, config, other_order
from tests.tables import data, each_row

Tried = Callable[[Callable[[Policy], object]], Replayed]
NOTHING = Change()


@pytest.fixture
def tried(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> Tried:
    """Replays a change of the policy that was in force, compared with it."""
    return lambda change: replay(past, changed(recorded, change, tmp_path), others=[config(recorded)])


def of(replayed: Replayed, route: str) -> Effect:
    return next(effect for effect in replayed.routes if effect.route == route)


def table(result: Replayed, name: str) -> list[dict[str, Any]]:
    names = [column.name for column in columns(f"{NAME}/{name}")]
    return [dict(zip(names, line, strict=True)) for line in result.tables[name]]


def codes(result: Replayed) -> dict[str, int]:
    return {row["what"]: row["requests"] for row in table(result, "unknown")}


def to(result: Replayed, target: str, data_class: str = "") -> tuple[int, int]:
    """Requests of a class that went there, and that would."""
    rows = [row for row in table(result, "egress") if row["target"] == target and data_class in ("", row["class"])]
    return sum(row["before"] for row in rows), sum(row["after"] for row in rows)


def test_a_vendor_vanishes(recorded: Gateway, tried: Tried) -> None:
    def without(rows: Policy) -> None:
        del rows["targets"]["dear"], rows["routes"]["lowered"], rows["routes"]["auto"]["judge"]
        rows["budgets"] = [one for one in rows["budgets"] if one["id"] != "small"]
        for name in ("auto", "checked", "voted", "planned", "cheap-first", "fixed"):
            strategy = rows["routes"][name]["strategy"]
            strategy["targets"] = list(dict.fromkeys(n if n != "dear" else "home" for n in strategy["targets"]))
        del rows["routes"]["shared"]["strategy"]["weights"]["dear"]

    result = tried(without)
    before, after = to(result, "dear")
    assert before > after == 0 > max(result.total.cost.value, result.total.passes.value)
    pinned = of(result, "dear")
    assert (pinned.refusals.value, pinned.cost.value) == (1, -DEAR_NANO)
    changes = table(result, "changes")
    gone = {row["why"] for row in changes if row["before"] == "dear" and row["after"] == NO_TARGET}
    assert gone == {"the policy has no such route, or the key may not name it"}
    assert not any(row["route"] == "cheap-first" and row["after"] != NO_TARGET for row in changes)


def test_a_stricter_class(recorded: Gateway, tried: Tried) -> None:
    """Personal data may be redacted no more: only the target in the EU may see it."""

    def strict(rows: Policy) -> None:
        rows["sensitivity"]["classes"]["personal"] = {"regions": ["eu"]}
        rows["targets"]["home"]["region"] = "us"

    assert len(recorded.rows("SELECT id FROM requests WHERE data_class = 'personal' AND route <> 'judge'")) == 3
    result = tried(strict)
    redacted = [row for row in table(result, "egress") if row["redacted"] == "yes"]
    assert sum(row["before"] for row in redacted) > 0 == sum(row["after"] for row in redacted)
    assert to(result, "dear", "personal")[1] >= 1
    assert of(result, "cheap-first").changed == 1


def test_a_class_that_is_blocked_is_refused(tried: Tried) -> None:
    result = tried(lambda rows: rows["sensitivity"]["classes"].update(personal={"block": True}))
    assert result.total.refusals.value == 3
    changes, decisions = table(result, "changes"), table(result, "decisions")
    assert {row["after"] for row in changes} == {NO_TARGET}
    assert result.total.cost.value == sum(row["change_usd"] for row in decisions) < 0
    assert all(row["why"].endswith("data_class: class personal may not be sent anywhere") for row in changes)


def test_a_cheaper_target_that_was_never_asked(recorded: Gateway, tried: Tried) -> None:
    def cheaper(rows: Policy) -> None:
        cheap = rows["targets"]["cheap"]
        price = {"input": 0.001, "output": 0.002}
        rows["targets"]["new"] = {**cheap, "model": {**cheap["model"], "name": "new", "price": price}}
        rows["routes"]["cheap-first"]["strategy"]["targets"].append("new")

    result = tried(cheaper)
    effect = of(result, "cheap-first")
    assert effect.changed == codes(result)["never_asked"] > EACH
    assert -effect.spent < effect.cost.value < 0
    assert effect.cost.low <= effect.cost.value <= effect.cost.high <= 0
    (shift,) = [row for row in table(result, "changes") if row["before"] == "cheap"]
    assert (shift["after"], shift["why"]) == ("new", "cheapest")
    assert table(result, "decisions")[0]["route"] == "cheap-first"


def test_expected_costs_are_what_answers_did_cost(tried: Tried) -> None:
    """Both targets have answered often enough: the prices of their real answers, not the model's idea of them."""
    result = tried(other_order)
    effect = of(result, "fixed")
    assert {row["route"] for row in table(result, "changes")} == {"fixed"}, "other routes are not touched"
    assert result.total.changed == effect.changed > 0
    assert "fewer right answers: $" in verdict(result)
    assert {row["target"]: row["answers"] for row in table(result, "calibration")}["cheap"] >= 30
    # One of them asks for two answers to its question.
    expected = effect.changed * (CHEAP_NANO - DEAR_NANO) + OUTPUT * (200 - 40_000)
    assert effect.cost.value == pytest.approx(expected, rel=0.02)
    assert effect.passes.value < 0


def test_experiments_of_the_past_are_trials_of_policies_that_choose_what_they_asked(tried: Tried) -> None:
    """Right answers worth nothing, or much: one of both chooses the other target, which experiments asked."""
    worth = (0.000000001, 1_000)
    result = [tried(lambda rows: rows["routes"]["tried"].update(failure_cost_usd=usd)) for usd in worth]  # noqa: B023
    assert sum(of(replayed, "tried").sample for replayed in result) > 0


def test_budgets_are_played_in_the_order_of_time(recorded: Gateway, tried: Tried) -> None:
    """All that comes after the limit is refused, and costs nothing: that much is exact."""
    limit = 10 * DEAR_NANO
    result = tried(lambda rows: rows["budgets"].append({"id": "less", "limit_usd": limit / 1e9, "window": "lifetime"}))
    rows = recorded.rows("SELECT id, cost, target FROM requests WHERE route <> 'judge' ORDER BY id")
    sums = list(accumulate((row["cost"] for row in rows), initial=0))
    kept = next(number for number, spent in enumerate(sums) if spent >= limit)
    assert result.total.cost.value == sums[kept] - result.total.spent
    assert {row["why"] for row in table(result, "changes")} == {"budget less is used up"}
    stopped = [row for row in rows[kept:] if row["cost"] or row["target"]]
    assert result.total.refusals.value == result.total.changed
    assert len(stopped) <= result.total.changed <= len(stopped) + 1
    assert codes(result)["passes"] == result.total.changed
    assert {row["request"] for row in table(result, "decisions")} <= {row["id"] for row in rows[kept:]}


def test_a_budget_that_sends_elsewhere_refuses_nothing(tried: Tried) -> None:
    budget = {"id": "less", "limit_usd": 0.000001, "window": "lifetime", "exhausted": {"downgrade": "cheap-first"}}
    result = tried(lambda rows: rows["budgets"].append({**budget, "routes": ["fixed"]}))
    assert codes(result)["downgraded"] > 0 == result.total.changed


def test_what_was_refused_and_would_be_served_was_never_seen(tried: Tried) -> None:
    """A secret, on a route of remote targets only."""
    result = tried(lambda rows: rows["routes"]["fixed"]["strategy"]["targets"].append("home"))
    effect = of(result, "fixed")
    assert (effect.refused, effect.refusals.value, effect.changed, codes(result)["unseen"]) == (1, -1, 1, 1)
    assert min(effect.cost.value, effect.passes.value) > 0
    (shift,) = table(result, "changes")
    assert (shift["before"], shift["after"], shift["why"]) == (NO_TARGET, "home", "a target may serve it")


def test_a_route_that_is_gone_refuses_what_named_it(tried: Tried) -> None:
    result = tried(lambda rows: rows["routes"].pop("voted"))
    effect = of(result, "voted")
    assert (effect.refusals.value, effect.changed) == (EACH, EACH)
    assert effect.cost.value == -effect.spent
    assert table(result, "decisions")[0]["after"] == NO_TARGET


def test_a_pair_is_valued_by_the_chance_that_its_second_is_asked(tried: Tried) -> None:
    """A cascade in place of the dear target alone: cheap answers, and dear ones where the check says no."""
    result = tried(lambda rows: rows["routes"].update(fixed=rows["routes"]["checked"]))
    effect = of(result, "fixed")
    assert "cheap + dear" in {row["after"] for row in table(result, "changes")}
    assert -effect.spent < effect.cost.value < 0
    before, after = to(result, "cheap")
    assert after > before


def test_a_failure_is_not_played_again(tried: Tried) -> None:
    result = tried(lambda rows: rows["routes"].update(failing=ordered("home")))
    assert (result.total.changed, codes(result)["unanswered"], result.total.cost.value) == (0, 1, 0)


def test_classes_that_a_policy_lacks_are_all_classes(tried: Tried) -> None:
    """Fail closed: it is not known where such data may go."""

    def lacking(rows: Policy) -> None:
        del rows["sensitivity"]["classes"]["personal"]
        rows["sensitivity"]["detectors"] = [{"kind": "secrets", "class": "secret"}]

    result = tried(lacking)
    assert codes(result)["class"] == 3
    places = {row["target"] for row in table(result, "egress") if row["class"] == "personal" and row["after"]}
    assert places == {"home"}
    assert codes(result)["detectors"] == result.total.requests


def unchanged(result: Replayed) -> bool:
    effects = (result.total, *result.routes)
    return not result.tables["changes"] and all(
        (each.changed, each.cost, each.passes, each.refusals) == (0, NOTHING, NOTHING, NOTHING) for each in effects
    )


def test_another_price_or_model_of_a_target_that_is_kept_is_not_looked_at_and_that_is_said(
    recorded: Gateway, past: SqliteLedger, tmp_path: Path, tried: Tried
) -> None:
    def renamed(rows: Policy) -> None:
        rows["targets"]["dear"]["model"]["name"] = "dearer"

    result = tried(renamed)
    others = sum(
        1 for row in recorded.rows("SELECT target FROM requests WHERE route = 'fixed'") if row["target"] == "dear"
    )
    assert codes(result)["repriced"] >= others > 0
    assert "another price or model behind a target is not looked at" in as_report(result).title
    assert codes(replay(past, changed(recorded, renamed, tmp_path)))["repriced"] >= others


def test_the_same_policy_changes_nothing(recorded: Gateway, past: SqliteLedger) -> None:
    result = replay(past, config(recorded))
    assert unchanged(result)
    assert (verdict(result), "repriced" in codes(result)) == ("Nothing changes", False)
    (booked,) = recorded.rows("SELECT SUM(cost) AS cost, COUNT(*) AS requests FROM requests WHERE route <> 'judge'")
    assert (result.total.spent, result.total.requests) == (booked["cost"], booked["requests"])
    assert sum(effect.spent for effect in result.routes) == booked["cost"]
    assert {*ROUTES, "lowered", "closed", "dear"} - {"lowered"} <= {effect.route for effect in result.routes}
    assert all(row["before"] == row["after"] for row in table(result, "egress"))


def test_what_was_learned_since_is_no_merit_of_a_policy(
    recorded: Gateway, past: SqliteLedger, tmp_path: Path, tried: Tried
) -> None:
    """Compared with the policy that was in force; alone it says that it can't tell."""

    def same(rows: Policy) -> None:
        rows["targets"]["dear"].update(timeouts={"total_ms": 599_000})

    again = changed(recorded, same, tmp_path)
    assert again.hash != config(recorded).hash
    assert unchanged(tried(same))
    alone = replay(past, again)
    assert codes(alone)["other_policy"] == alone.total.requests


def test_several_processes_find_the_same(recorded: Gateway, tmp_path: Path) -> None:
    changed(recorded, other_order, tmp_path)
    options = ("--policy", str(tmp_path / "new.yaml"), "--against", str(recorded.policy), "--json")
    one, two = (recorded.lowpass("replay", *options, "--processes", number) for number in ("1", "2"))
    assert one == two
    assert one[0] == 0
    assert msgspec.json.decode(one[1])["totals"]["changed"] > 0


def test_only_what_was_asked_for(recorded: Gateway, past: SqliteLedger) -> None:
    policy = config(recorded)
    whole, some = replay(past, policy), replay(past, policy, where=[LabelFilter("route", frozenset({"fixed", "auto"}))])
    of = {effect.route: effect for effect in whole.routes}
    assert some.routes == (of["auto"], of["fixed"])
    began = recorded.rows("SELECT MAX(started_ms) AS last FROM requests")[0]["last"]
    late = replay(past, policy, since_ms=began + 1)
    assert (late.total.requests, late.total.spent) == (0, 0)
    assert 0 < replay(past, policy, until_ms=began).total.requests <= whole.total.requests


def test_totals_are_the_sum_of_the_rows(tried: Tried) -> None:
    report = as_report(tried(lambda rows: rows["routes"]["cheap-first"]["strategy"]["targets"].remove("cheap")))
    for name in ("requests", "changed", "spent_usd", "refused"):
        assert sum(report.column(name)) == report.total(name)  # type: ignore[arg-type]
    assert Counter(report.column("cost_is")) == {"observed": len(report.rows) - 1, "expected": 1}
    assert [table.name for table in report.below] == ["changes", "decisions", "egress", "calibration", "unknown"]
    assert MAIL not in str(report)


TEXT = page("docs/replay.md")
COMMANDS = [line for block in blocks(TEXT, "sh") for line in block.splitlines()]


def command(home: Path, policy: Path, *options: str, **environ: str) -> tuple[int, str]:
    """In this process: nothing is forked."""
    done = lowpass(home, "replay", "--policy", str(policy), "--processes", "1", *options, **environ)
    return done.status, done.output


def test_a_wrong_policy_says_where(recorded: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("version: 1\ntargets: {}\nroutes:\n  auto:\n    strategy: {kind: cheapestt, targets: [a]}\n")
    for path, says in ((file, f"{file}:5:"), (tmp_path / "none.yaml", "none.yaml")):
        status, output = command(recorded.home, path)
        assert (status, says in output) == (1, True), output


@each_row("options, says", data(__file__, "nonsense.yaml"))
def test_what_makes_no_sense_is_told(recorded: Gateway, options: str, says: str) -> None:
    status, output = command(recorded.home, recorded.policy, *options.split())
    assert (status, says in output) == (1, True), output


def test_no_ledger_an_empty_one_and_an_older_one(recorded: Gateway, tmp_path: Path) -> None:
    status, output = command(tmp_path, recorded.policy)
    assert (status, "there is no ledger" in output) == (1, True), output
    ledger = SqliteLedger(tmp_path / "lowpass.db")
    ledger.migrate()
    status, output = command(tmp_path, recorded.policy, "--json")
    assert status == 0, output
    found = msgspec.json.decode(output)
    assert (found["rows"], found["totals"]["requests"], found["totals"]["change_usd"]) == ([], 0, 0)
    with ledger.writing() as connection:
        connection.execute("PRAGMA user_version = 14")
    status, output = command(tmp_path, recorded.policy)
    assert (status, "lowpass ledger migrate" in output) == (1, True), output


def test_the_policy_in_force_is_what_it_is_compared_with(recorded: Gateway, tmp_path: Path) -> None:
    """LOWPASS_POLICY, where nothing else is said."""
    again = tmp_path / "again.yaml"
    again.write_text(json.dumps(json.loads(recorded.policy.read_text())))
    alone = command(recorded.home, again, "--json")[1]
    helped = command(recorded.home, again, "--json", LOWPASS_POLICY=str(recorded.policy))[1]
    assert "other_policy" in alone
    assert "other_policy" not in helped
    assert msgspec.json.decode(helped)["totals"]["changed"] == 0


@each_row("command", COMMANDS)
def test_commands_of_the_document_run(command: str, recorded: Gateway, tmp_path: Path) -> None:
    changed(recorded, other_order, tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "lowpass"
    paths = {"new.yaml": str(tmp_path / "new.yaml"), "policy.yaml": str(recorded.policy)}
    status, output = recorded.lowpass(*(paths.get(argument, argument) for argument in arguments))
    assert status == 0, output
    assert "fixed" in output or "class" in output


def test_the_example_runs(recorded: Gateway) -> None:
    (example,) = blocks(TEXT, "python")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", example], cwd=recorded.home, env=environ, check=True)


def test_columns_and_tables_are_those_of_the_report(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> None:
    report = as_report(replay(past, changed(recorded, other_order, tmp_path), others=[config(recorded)]))
    assert report.name == NAME
    names = [name for row in rows(TEXT, "column", "meaning") for name in row["column"].split(", ")]
    assert names == [column.name for column in report.columns][1:]
    assert [row["table"] for row in rows(TEXT, "table", "what it tells")] == [each.name for each in report.below]


def test_every_code_field_and_filter_is_explained() -> None:
    assert [row["code"] for row in rows(TEXT, "code", "these requests")] == list(TEXTS)
    names = [name for row in rows(TEXT, "field", "what it is") for name in row["field"].split(", ")]
    assert sorted(names) == sorted(field.name for field in msgspec.structs.fields(RequestProfile))
    (filters,) = [line for line in TEXT.splitlines() if line.startswith("| `--where")]
    assert {*DIMENSIONS} <= set(quoted(filters))
