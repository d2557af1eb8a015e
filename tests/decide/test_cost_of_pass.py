"""The target of the lowest expected cost of a right answer, and the course that is likeliest to end well."""

import math
from decimal import Decimal
from math import log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.decide.simulate import RemainingLimits, SimulatedPlan, Simulation, simulate
from router.decide.strategies import CostOfPass, PlanStrategy, SessionTerms
from router.decide.weigh import SAME_RATE, DecisionInput, Ranking, expected_loss, price
from router.decide.worth import both_pass
from router.types.decision import Cascade, Hedge
from tests.decide.situations import NAMES, names, situation, stakes, usd, why
from tests.tables import data, each_row

NAN, INF = math.nan, math.inf
CHANCE = st.floats(0, 1)
MONEY = st.floats(0, 10)


def rank(state: DecisionInput, **fields: Any) -> Ranking:
    return CostOfPass(kind="cost_of_pass", targets=tuple(place.id for place in state.targets), **fields).rank(state)


@st.composite
def situations(draw: st.DrawFn) -> DecisionInput:
    count = draw(st.integers(1, 6))

    def column(of: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(of, min_size=count, max_size=count))

    limits: dict[str, Any] = {"min_pass_rate": st.floats(0.01, 0.99), "deadline_ms": st.integers(1, 20_000)}
    return situation(
        column(CHANCE),
        column(MONEY),
        column(st.floats(0, 0.5)),
        usual_p=column(CHANCE),
        usual_cost=column(MONEY),
        total_ms=column(st.floats(1, 10_000)),
        last=draw(st.sampled_from(["", *NAMES[:count], "gone"])),
        stakes=stakes(
            draw(st.none() | st.floats(0, 100)),
            draw(st.none() | MONEY),
            **{name: draw(st.none() | of) for name, of in limits.items()},
        ),
    )


def test_the_price_of_a_failure_decides_and_without_one_a_right_answer_is_what_is_bought() -> None:
    """0.002 / 0.5 > 0.003 / 0.9."""
    ranked = rank(situation([0.5, 0.9], [0.002, 0.003], stakes=stakes(min_pass_rate=0.2)))
    assert names(ranked) == "ba"
    assert [row.value_nano for row in ranked.weigh()] == [usd(0.004), usd(0.003 / 0.9)]
    for failure, order in ((0.001, "abc"), (0.05, "bac"), (1.0, "cba")):
        assert names(rank(situation([0.5, 0.8, 0.95], [0.001, 0.008, 0.03], stakes=stakes(failure)))) == order
    for rates, first in (([0.9989, 0.9992], "a"), ([0.9982, 0.9992], "b")):  # as often right, and cheaper
        assert names(rank(situation(rates, [0.0001, 0.0002], stakes=stakes(10.0))))[0] == first
    assert names(rank(situation([0.7] * 4, [0.01] * 4))) == "abcd"
    assert sorted(names(rank(situation([NAN, NAN], [0.1, 0.2])))) == ["a", "b"], "one is asked"


@each_row(
    "sds, caution, leaves",
    [
        *(((0.02, sd), caution, True) for sd, caution in ((0.0, 10.0), (0.1, 2.0), (0.3, 1.0), (0.5, 0.0))),
        *(((0.02, sd), caution, False) for sd, caution in ((0.3, 1.5), (0.5, 1.0), (INF, 0.01), (NAN, 0.0))),
        *(((sd, 0.02), 1.0, sd < 0.5) for sd in (0.1, 0.5)),  # of the baseline it counts as well
    ],
)
def test_leaving_the_baseline_takes_evidence(sds: tuple[float, float], caution: float, leaves: bool) -> None:
    """The baseline is a: best over all traffic. For this request b is expected to be better by 0.1 USD."""
    ranked = rank(situation([0.8, 0.9], [0.01, 0.01], sds, usual_p=[0.9, 0.5]), caution=caution)
    assert names(ranked) == ("ba" if leaves else "ab")
    assert why(ranked) == ({"a": "baseline", "b": "chosen"} if leaves else {"a": "chosen", "b": "not_evident"})


@given(st.floats(-0.5, 0.5), st.floats(0.01, 0.5), st.floats(0, 3))
def test_the_baseline_is_left_for_more_than_caution_times_the_regret(gain: float, sd: float, caution: float) -> None:
    """Which is what would be lost on average where a better pass rate was only believed in."""
    state = situation([0.5, 0.5 + gain], [0.01, 0.01], [0.0, sd], usual_p=[0.9, 0.5], last="gone")
    worse = math.erfc(gain / sd / math.sqrt(2)) / 2
    regret = sd * math.exp(-((gain / sd) ** 2) / 2) / math.sqrt(2 * math.pi) - gain * worse
    margin = usd(gain - caution * regret)
    loss = expected_loss(state, np.zeros(2, dtype=np.intp), caution)
    assert loss.margin[1] == pytest.approx(margin, abs=usd((0.001 + 0.01 * abs(gain)) * (1 + caution)))
    assert names(rank(state, caution=caution)) == ("ba" if loss.margin[1] > 0 else "ab")
    assert expected_loss(state, np.zeros(2, dtype=np.intp), caution + 1).margin[1] <= loss.margin[1]


def test_what_is_not_known_of_a_request_keeps_nobody_from_a_target_that_is_better_however_hard_it_is() -> None:
    """b is better by 0.1, however hard it is; or only unless it is hard."""
    state = situation([0.8, 0.9], [0.01, 0.01], usual_p=[0.9, 0.5])
    for baseline, first in (((0.9, 0.8, 0.7), "b"), ((0.6, 0.8, 1.0), "a")):
        nodes = np.array([baseline, (1.0, 0.9, 0.8)]).T
        asked = structs.replace(state, forecast=structs.replace(state.forecast, p_nodes=nodes))
        assert names(rank(asked, caution=10.0))[0] == first


@each_row("broken", [NAN, INF])
@each_row("column", ["p", "cost", "usual_p", "usual_cost"])
def test_what_is_no_number_is_never_chosen(column: str, broken: float) -> None:
    columns: dict[str, Any] = {name: [0.9, 0.5, 0.4] for name in ("p", "cost", "usual_p", "usual_cost")}
    columns[column] = [broken, 0.5, 0.4]
    for failure in (0.1, 1.0, 100.0, None):
        ranked = rank(situation(sd=0.1, **columns, stakes=stakes(failure)))
        assert (names(ranked)[0] != "a", names(ranked)[-1], why(ranked)["a"]) == (True, "a", "unknown")
        assert all(math.isfinite(row.p) and row.cost_nano >= 0 for row in ranked.weigh())


@each_row("limits, order, reasons", data(__file__, "limits.yaml"))
def test_floor_cap_and_deadline(limits: dict[str, Any], order: str, reasons: str) -> None:
    """Where none keeps within them it is the one that comes nearest; the others follow, the least bad first."""
    state = situation(
        [0.9, 0.4, 0.82], [0.05, 0.02, 0.04], total_ms=[1_000, 9_000, 3_000], stakes=stakes(0.1, **limits)
    )
    ranked = rank(state)
    assert [row.why for row in ranked.weigh()] == reasons.split()
    assert names(ranked) == order


def test_a_session_does_not_stay_where_evidence_was_never_enough_nor_where_a_limit_is_broken() -> None:
    """An experiment or a fallback had sent the first to b. The floor is for the rate that can be relied on."""
    unsure = situation([0.8, 0.9], [0.01, 0.01], 0.3, usual_p=[0.9, 0.5], last="b")
    assert names(rank(unsure, caution=1.0)) == "ab"
    assert names(rank(situation([0.7, 0.7], [0.02, 0.01], last="a", stakes=stakes(1.0, 0.015)))) == "ba"
    state = situation([0.9, 0.88], [0.001, 0.1], [0.2, 0.01], stakes=stakes(0.001, min_pass_rate=0.85))
    assert why(rank(state)) == {"a": "below_floor", "b": "chosen"}


@each_row("last, sticky, first", [("", 0.05, "b"), ("a", 0.05, "a"), ("a", 0.01, "b"), ("b", 0.05, "b")])
def test_a_session_stays_where_it_is_for_a_near_tie(last: str, sticky: float, first: str) -> None:
    ranked = rank(situation([0.69, 0.70], [0.0, 0.0], last=last), sticky=sticky)
    assert (names(ranked)[0], why(ranked)[first]) == (first, "kept" if first == "a" else "chosen")


@given(situations(), st.floats(0, 3))
def test_whatever_is_forecast(state: DecisionInput, caution: float) -> None:
    """All are in the order once; those that break no limit come before those that do; the first is no worse than
    the baseline, but for a trifle in a session."""
    ranked = rank(state, caution=caution, sticky=0.05)
    assert sorted(ranked.order) == list(range(len(state.targets)))
    broken = [bool(ranked.out[at]) for at in ranked.order[1:]]
    assert broken == sorted(broken)
    value = price(state.forecast.cost, state.forecast.p, state.stakes)
    if not ranked.out.any():
        baseline = expected_loss(state, np.zeros(len(value), dtype=np.intp), caution).baseline
        first = value[ranked.order[0]]
        trifle = 0.06 * first if state.last else SAME_RATE * ((state.stakes.failure_nano or 0) + first)
        assert first <= value[baseline] + trifle


@given(situations(), st.floats(0.0001, 10), st.floats(1, 1_000), st.floats(0, 3))
def test_dearer_failures_lead_to_nothing_worse(
    state: DecisionInput, failure: float, factor: float, caution: float
) -> None:
    out, forecast = np.zeros(len(state.targets), dtype=np.intp), state.forecast
    low, high = (structs.replace(state, stakes=stakes(usd)) for usd in (failure, failure * factor))
    before, after = expected_loss(low, out, caution).best, expected_loss(high, out, caution).best
    assert not (forecast.cost[after] > forecast.cost[before] and forecast.p[after] < forecast.p[before])


@given(situations(), st.data())
def test_what_makes_a_target_worse_never_makes_it_the_first(state: DecisionInput, data: st.DataObject) -> None:
    every, forecast = np.zeros(len(state.targets), dtype=np.intp), state.forecast
    at = data.draw(st.integers(0, len(every) - 1))
    p, cost = forecast.p.copy(), forecast.cost.copy()
    p[at], cost[at] = p[at] / 2, cost[at] + usd(1)
    worse = structs.replace(state, forecast=structs.replace(forecast, p=p, cost=cost, weighed_cost=cost))
    assert expected_loss(state, every, 0.0).best == at or expected_loss(worse, every, 0.0).best != at


# Budget and deadline: the course that is likeliest to end well, against what can be worked out by hand.


ENDLESS = RemainingLimits(np.inf, np.inf)
Z90 = NormalDist().inv_cdf(0.9)
CHEAP_BETTER: dict[str, Any] = {"p": [0.6, 0.9], "cost": [0.01, 0.1]}


def rank_plan(state: DecisionInput, session: SessionTerms | None = None, **fields: Any) -> Ranking:
    targets = tuple(place.id for place in state.targets)
    return PlanStrategy(kind="plan", targets=targets, session=session, **fields).rank(state)


def success(state: DecisionInput, *courses: SimulatedPlan, rest: RemainingLimits = ENDLESS) -> list[float]:
    return [float(row.mean()) for row in simulate(state, courses, 2_000, rest).right]


def within(mean: float, p90: float, limit: float) -> float:
    """Chance that a lognormal keeps within the limit."""
    spread = Z90 - sqrt(Z90**2 - 2 * log(p90 / mean))
    return NormalDist(log(mean) - spread**2 / 2, spread).cdf(log(limit))


@each_row("limit", [700, 1_000, 1_500, 2_500])
def test_the_chance_to_be_right_in_time_and_within_the_cap(limit: int) -> None:
    state = situation([0.8], [0.01], p90_ms=1_800.0)
    in_time = success(state, SimulatedPlan(0), rest=RemainingLimits(np.inf, limit))
    assert in_time == pytest.approx([0.8 * within(1_000, 1_800, limit)], abs=0.002)
    within_cap = success(state, SimulatedPlan(0), rest=RemainingLimits(usd(limit / 100_000), np.inf))
    assert within_cap == pytest.approx([0.8 * within(0.01, 0.02, limit / 100_000)], abs=0.002)


def test_the_chance_and_the_cost_of_a_checked_pair() -> None:
    played = simulate(situation(**CHEAP_BETTER, cost_spread=1.5), [SimulatedPlan(0, 1)], 2_000, ENDLESS)
    assert played.right.mean() == pytest.approx(0.6 + 0.9 - float(both_pass(0.6, 0.9)))
    assert played.cost.mean() == pytest.approx(usd(0.01 + 0.4 * 0.1), rel=0.02)
    slow = situation(**CHEAP_BETTER, total_ms=[500.0, 5_000.0], p90_ms=[550.0, 5_500.0])
    late = success(slow, SimulatedPlan(0, 1), rest=RemainingLimits(np.inf, 2_000))
    assert late == pytest.approx([0.6]), "a second answer that comes too late rescues nothing"


TAIL: dict[str, Any] = {"total_ms": [1_000.0, 300.0], "p90_ms": [2_000.0, 400.0]}
"""One in three answers of the first takes longer than 1.2 s; its rival, started in time, hardly ever does."""


def test_a_hedge_is_there_for_the_slow_tail_and_a_stream_has_a_rival_only_if_it_is_late_to_begin() -> None:
    state = situation([0.9, 0.9], [0.01, 0.01], **TAIL, stakes=stakes(deadline_ms=1_200))
    alone, hedged = success(state, SimulatedPlan(0), SimulatedPlan(0, 1, 700), rest=RemainingLimits(np.inf, 1_200))
    assert alone == pytest.approx(0.9 * within(1_000, 2_000, 1_200), abs=0.01)
    assert hedged > 0.88

    def played(p: list[float], first_ms: Any) -> Simulation:
        state = situation(p, [0.01, 0.01], **TAIL, first_ms=first_ms, stream=True)
        return simulate(state, [SimulatedPlan(0), SimulatedPlan(0, 1, 700)], 500, ENDLESS)

    begun = played([0.9, 0.1], 10.0)
    assert (begun.cost[0] == begun.cost[1]).all()
    assert (begun.right[0] == begun.right[1]).all()
    late = played([0.1, 0.9], [900.0, 10.0])
    assert late.cost[1].mean() > 1.2 * late.cost[0].mean()
    assert late.right[1].mean() > 0.3


def test_pairs_that_differ_by_chance_only_are_as_good_as_the_cheapest_of_them() -> None:
    """Twenty pairs of five equals: some is always ahead by its draws."""
    columns: dict[str, Any] = {"p": [0.6] * 5, "cost": [0.01 * at for at in range(1, 6)]}
    state = situation(**columns, verified=True, stakes=stakes(deadline_ms=2_500), stream=True)
    for draw in range(10):
        assert names(rank_plan(structs.replace(state, draw=draw / 10))).startswith("ab")
    state = situation([np.nan, 0.5, 0.9], [0.01, np.nan, 0.02], stakes=stakes(most=1.0), verified=True)
    ranked = rank_plan(state)
    assert (names(ranked)[0], ranked.tactic) == ("c", None), "with what is no number is not planned"


MINUTE = stakes(deadline_ms=60_000)
HEDGED: dict[str, Any] = {"total_ms": [1_000.0, 400.0], "p90_ms": [2_000.0, 450.0], "p": [0.9, 0.5]}
HEDGED |= {"cost": [0.01, 0.01], "stakes": stakes(deadline_ms=1_300)}


@each_row(
    "more, order, tactic, reasons",
    [
        ({"stakes": MINUTE}, "ba", None, "less_likely chosen"),
        ({"stakes": MINUTE, "p": [0.9, 0.9]}, "ab", None, ""),
        ({"stakes": stakes(most=0.05)}, "ab", None, "chosen over_cost"),
        ({"stakes": MINUTE, "verified": True}, "ab", Cascade(2), "first second"),
        ({"stakes": stakes(deadline_ms=5_000), "total_ms": [500.0, 90_000.0]}, "ab", None, "chosen too_slow"),
        ({"stakes": stakes(deadline_ms=1)}, "ab", None, "chosen too_slow"),
        (HEDGED, "ab", Hedge(850), "first second"),
    ],
)
def test_the_course_that_is_taken(more: dict[str, Any], order: str, tactic: object, reasons: str) -> None:
    ranked = rank_plan(situation(**(CHEAP_BETTER | more)))
    assert (names(ranked), ranked.tactic) == (order, tactic)
    assert not reasons or why(ranked) == dict(zip("ab", reasons.split(), strict=True))


@each_row(
    "calls, spent, first", [(0, 0, "b"), (5, 0.5, "b"), (5, 0.95, "a"), (9, 0.8, "b"), (30, 0.8, "b"), (9, 2, "a")]
)
def test_a_session_is_planned_anew_from_what_is_left(calls: int, spent: float, first: str) -> None:
    """Ten calls for one dollar; the better target takes ten cents."""
    state = situation([0.6, 0.9], [0.001, 0.09], cost_spread=1.1, calls=calls, spent=usd(spent))
    assert names(rank_plan(state, SessionTerms(calls=10, budget_usd=Decimal(1))))[0] == first


def test_time_of_a_session_runs_out_as_money_does_and_a_long_one_is_not_given_up() -> None:
    """Ten calls in two minutes, of which the better target takes ten seconds each; 200 are unlikely to be all right."""
    columns: dict[str, Any] = {"total_ms": [100.0, 10_000.0], "p90_ms": [120.0, 11_000.0]}
    for elapsed, first in ((0.0, "b"), (112_000.0, "a")):
        state = situation([0.6, 0.9], [0.01, 0.01], **columns, elapsed_ms=elapsed)
        assert names(rank_plan(state, SessionTerms(calls=10, deadline_s=120)))[0] == first
    assert (
        names(rank_plan(situation([0.3, 0.6], [0.001, 0.002]), SessionTerms(calls=200, budget_usd=Decimal(10))))[0]
        == "b"
    )


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(1, 20_000)), min_size=1, max_size=7),
    st.none() | st.integers(1, 30_000),
    st.none() | st.floats(0.001, 1),
    st.fixed_dictionaries({"draw": st.floats(0, 0.999), "verified": st.booleans(), "stream": st.booleans()}),
)
def test_a_plan_is_sound_whatever_is_forecast(
    rows: list[tuple[float, float, float]], deadline: int | None, most: float | None, more: dict[str, Any]
) -> None:
    """All once, the same again for the same draw, and a tactic that fits."""
    p, cost, total = zip(*rows, strict=True)
    state = situation(p, cost, total_ms=list(total), stakes=stakes(None, most, deadline_ms=deadline), **more)
    ranked = rank_plan(state, draws=50)
    assert sorted(ranked.order) == list(range(len(p)))
    outcomes = [(each.order, each.tactic, each.weigh()) for each in (ranked, rank_plan(state, draws=50))]
    assert outcomes[0] == outcomes[1]
    assert not isinstance(ranked.tactic, Cascade) or more["verified"]
    assert not isinstance(ranked.tactic, Hedge) or (deadline is not None and 0 < ranked.tactic.after_ms < deadline)
