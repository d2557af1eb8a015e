"""Tables of outcomes: what the gateway's estimator learns of them, and what it makes of bad ones."""

from typing import Any

import numpy as np
import pytest

from router.estimate import Estimator, fit
from tests.tables import each_row

SUMS = "Prove that {a} to the power of {b} leaves the remainder r modulo {c}, and find the least such r."
CODE = "Write a lock-free queue f_{a} in C++ for {b} writers and {c} readers, with a proof of its memory order."
NEW = [{"prompt": text.format(a=305, b=61, c=97)} for text in (CODE, SUMS)]
SIZE = 960
Row = dict[str, Any]
Tables = tuple[list[Row], list[Row]]


@pytest.fixture(scope="module")
def tables() -> Tables:
    """Two kinds of prompts: `coder` is right on code, `counter` on sums, `dear` on both for ten times the price."""
    rng = np.random.default_rng(7)
    prompts, rows = [], []
    for at in range(SIZE):
        code = at % 2
        a, b, c = rng.integers(1, 999, 3)
        text = (CODE if code else SUMS).format(a=a, b=b, c=c)
        prompts.append({"prompt_id": f"q{at}", "prompt": text, "benchmark": "code" if code else "sums"})
        own, other = (0.9, 0.2) if code else (0.2, 0.9)
        for model, chance, cost in (("coder", own, 0.001), ("counter", other, 0.001), ("dear", 0.92, 0.01)):
            price, score = cost * float(np.exp(0.2 * rng.standard_normal())), float(rng.random() < chance)
            rows.append(row(f"q{at}", model, score, price))
    return prompts, rows


@pytest.fixture(scope="module")
def fitted(tables: Tables) -> Estimator:
    return fit(*tables)


def row(prompt: str, model: str, score: object, cost: float | None = 0.1) -> Row:
    return {"prompt_id": prompt, "model": model, "score": score, "cost_usd": cost}


def test_learns_which_is_right_on_what_and_chooses_by_the_price_of_a_failure(fitted: Estimator) -> None:
    guess = fitted.predict(NEW)
    assert fitted.targets == ("coder", "counter", "dear")
    assert guess.p.shape == guess.p_sd.shape == guess.cost_usd.shape == (2, 3)
    assert guess.p.dtype == guess.cost_usd.dtype == np.float64
    np.testing.assert_allclose(guess.p[:, :2], [[0.9, 0.2], [0.2, 0.9]], atol=0.15)
    np.testing.assert_allclose(guess.cost_usd, [[0.001, 0.001, 0.01]] * 2, rtol=0.25)
    assert ((guess.cost_p10 < guess.cost_usd) & (guess.cost_usd < guess.cost_p90)).all()
    assert ((guess.p_sd > 0) & (guess.p_sd < 0.3)).all()
    assert [guess.choose(price).tolist() for price in (0.05, 50.0)] == [["coder", "counter"], ["dear", "dear"]]
    for price in (-1.0, np.nan, float("inf")):
        with pytest.raises(ValueError, match="failure_cost_usd"):
            guess.choose(price)
    mislabelled = [prompt | {"benchmark": "sums", "category": "x"} for prompt in NEW]
    np.testing.assert_array_equal(fitted.predict(mislabelled).p, guess.p)
    blank = fitted.predict([{"prompt": "  "}, {"prompt": None}])
    assert np.isfinite([*blank.p, *blank.cost_usd]).all()


def test_a_target_of_which_only_easy_rows_are_known_is_no_bargain_elsewhere() -> None:
    sums, poems = ([f"{what} {at}?" for at in range(20, 60)] for what in ("What is 7 times", "Write a poem on house"))
    prompts = [{"prompt_id": text, "prompt": text} for text in (*sums, *poems)]
    costs = {text: 0.001 if text in sums else 0.01 for text in (*sums, *poems)}
    rows = [row(text, name, 1, cost * times) for name, times in (("a", 1), ("b", 10)) for text, cost in costs.items()]
    with pytest.warns(UserWarning, match="fewer than 8 scored rows.*: 'odd' has 1$"):
        guess = fit(prompts, [*rows, row(sums[0], "odd", 1, 0.001)]).predict({"prompt": [sums[1], poems[1]]})
    assert guess.cost_usd[:, 2] == pytest.approx(guess.cost_usd[:, 0], rel=0.3)
    assert fit(prompts, rows).predict({"prompt": []}).p.shape == (0, 2)


def test_same_tables_same_estimates_in_any_form(tables: Tables) -> None:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    forms: dict[str, Any] = {"rows": lambda x: x.to_dict("records"), "columns": lambda x: x.to_dict("list")}
    forms |= {"pandas": lambda x: x, "pyarrow": pa.Table.from_pandas}
    few = [pd.DataFrame(tables[0][:40]), pd.DataFrame(tables[1][:120])]
    every = (forms["rows"], *forms.values())
    first, *others = (fit(*map(form, few)).predict(form(pd.DataFrame(NEW))) for form in every)
    np.testing.assert_array_equal(others[0].p, first.p)
    for same in others:
        np.testing.assert_allclose(same.p, first.p)
        np.testing.assert_allclose(same.cost_usd, first.cost_usd)


def test_outcomes_move_the_estimate_and_narrow_it_and_those_that_teach_nothing_are_counted(tables: Tables) -> None:
    learner = fit(*tables)
    before = learner.predict(NEW)
    learner.update([f"q{at}" for at in range(480)], "coder", 0.0, 0.008)
    after = learner.predict(NEW)
    assert (after.p[:, 0] < before.p[:, 0] - 0.05).all()
    assert (after.cost_usd[:, 0] > 2 * before.cost_usd[:, 0]).all()
    assert np.abs(after.p - before.p)[:, 2].max() < np.abs(after.p - before.p)[:, 0].max() / 4
    for prompt, score, cost in (("q1", 1, 1), ("nobody", 1, 1), ("q500", np.nan, np.nan), ("q501", np.nan, 1)):
        learner.update(prompt, "coder", score, cost)
    np.testing.assert_array_equal(learner.predict(NEW).p, after.p)
    reasons = ("repeated", "of_unknown_prompts", "without_outcome", "without_score")
    assert learner.ignored == {f"updates_{reason}": 1 for reason in reasons}


def test_impossible_outcomes_are_refused(fitted: Estimator) -> None:
    tries: list[Any] = [("nobody", 1.0, 0.1), ("score", 2.0, 0.1), ("score", [1.0, 0.0], 0.1)]
    for message, score, cost in (*tries, ("cost_usd", 1.0, -0.1), ("cost_usd", 1.0, float("inf"))):
        with pytest.raises(ValueError, match=message):
            fitted.update("q3", "nobody" if message == "nobody" else "coder", score, cost)


ONE = [{"prompt_id": "a", "prompt": "Hello"}]


@each_row(
    "prompts, rows, message",
    [
        ([{"prompt_id": "a"}], [], "'prompt'"),
        ([{"prompt": "Hello"}], [], "'prompt_id'"),
        (ONE, [{"prompt_id": "a", "model": "m"}], "'score'"),
        (ONE, [{"prompt_id": "a", "score": 1.0}], "'model'"),
        *((ONE, [row("a", "m", score)], "'score'") for score in (np.nan, 7.0, "good")),
        *((ONE, [row("a", "m", 1.0, cost)], "'cost_usd'") for cost in (float("inf"), -1.0)),
        (ONE, [row("b", "m", 1.0)], "nothing can be fitted"),
        ([*ONE, {"prompt_id": "a", "prompt": "Bye"}], [], "'prompt_id'"),
        ([{"prompt_id": "a", "prompt": 3}], [], "'prompt'"),
        ({"prompt_id": ["a", "b"], "prompt": ["x"]}, [], "rows"),
        ("prompts.parquet", [], "one dict"),
        (3, [], "no table"),
    ],
)
def test_tables_that_cannot_be_fitted_say_where(prompts: Any, rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(prompts, rows)


def test_what_is_not_used_is_counted_and_targets_come_in_the_order_that_is_asked_for(tables: Tables) -> None:
    prompts, rows = tables
    odd = [rows[0], row("q1", "coder", None, None), row("nobody", "coder", 1), row("q1", "silent", np.nan)]
    made = fit([*prompts, prompts[0], {"prompt_id": "empty", "prompt": ""}], [*rows, *odd])
    assert made.targets == ("coder", "counter", "dear")
    once = ("prompts_repeated", "prompts_without_text", "rows_of_unknown_prompts", "rows_of_other_targets")
    twice = {"rows_averaged": 2, "rows_without_score": 2, "targets_without_scores": 1}
    assert made.ignored == dict.fromkeys(once, 1) | twice
    two = fit(*tables, targets=["dear", "coder"])
    assert (two.targets, two.predict(NEW).p.shape) == (("dear", "coder"), (2, 2))
    assert two.ignored == {"rows_of_other_targets": SIZE}
    with pytest.raises(ValueError, match="'gpt'"):
        fit(*tables, targets=["coder", "gpt"])


def test_one_row_is_enough_but_says_little_and_costs_that_never_vary_have_a_finite_interval() -> None:
    """On the page's own example; the operator hears of it, and a wrong answer does not raise what is expected."""
    for cost in (None, 0.5):
        with pytest.warns(UserWarning, match="'m' has 1"):
            wrong, half, guess = (fit(ONE, [row("a", "m", score, cost)]).predict(ONE) for score in (0.0, 0.5, 1.0))
        assert 0.5 < wrong.p[0, 0] < half.p[0, 0] < guess.p[0, 0] < 1
        assert guess.p_sd[0, 0] > 0.001
        assert guess.cost_usd[0, 0] == pytest.approx(cost or 0.0)
        assert guess.choose(1.0).tolist() == ["m"]
    ids = list(map(str, range(40)))
    prompts = {"prompt_id": ids, "prompt": [f"Which country is city number {number} in?" for number in ids]}
    rows = [row(number, "cheap", float(int(number) % 3 == 0), 0.001) for number in ids]
    rows += [row(number, "dear", 1.0, 0.01) for number in ids]
    guess = fit(prompts, rows).predict({"prompt": ["Which country is Oslo in?", "42", "用中文回答"]})
    assert np.allclose(guess.cost_usd, [0.001, 0.01], rtol=0.01)
    assert ((guess.cost_p10 <= guess.cost_usd) & (guess.cost_usd <= guess.cost_p90) & np.isfinite(guess.cost_p90)).all()


def test_the_mean_is_the_bill_where_a_few_run_away_and_four_costs_in_five_are_in_the_interval(tables: Tables) -> None:
    prompts, rows = tables
    runaway = [each | {"cost_usd": 50.0} if at % 30 == 0 else each for at, each in enumerate(rows)]
    guess = fit(prompts, runaway).predict(prompts)
    bill = sum(each["cost_usd"] for each in runaway if each["model"] == "coder")
    assert guess.cost_usd[:, 0].sum() == pytest.approx(bill, rel=0.1)
    assert (guess.cost_p10[:, 0] < 0.01).all()
    guess = fit(prompts[:640], rows[:1920]).predict(prompts[640:])
    real = np.array([each["cost_usd"] for each in rows[1920:]]).reshape(-1, 3)
    assert 0.7 < ((guess.cost_p10 <= real) & (real <= guess.cost_p90)).mean() < 0.9


def test_functions_that_cannot_be_read_are_none(fitted: Estimator) -> None:
    bad = ["", "{", "3", "null", "[3, null]", '"text"', "[" * 100_000]
    odd = ['[{"name": 3, "parameters": [1]}, {"parameters": {"required": 5, "properties": null}}, {}]']
    guess = fitted.predict([{"prompt": NEW[0]["prompt"], "functions": text} for text in bad + odd])
    assert np.isfinite([guess.p, guess.cost_usd]).all()


def test_gaps_make_no_target_look_better_nor_does_a_missing_price(tables: Tables) -> None:
    """One that was only asked what all get right is not taken for the best."""
    prompts, rows = tables
    ease = [each | {"score": float(int(each["prompt_id"][1:]) % 2)} for each in rows]
    lucky = [row(f"q{at}", "lucky", 1.0, 0.001) for at in range(1, SIZE, 2)]
    made = fit(prompts, ease + lucky)
    assert made.predict(NEW).p[1, made.targets.index("lucky")] < 0.4
    with pytest.warns(UserWarning, match="no known cost, so that the dearest target's counts: 'coder'$"):
        free = fit(prompts, [each | {"cost_usd": None} if each["model"] == "coder" else each for each in rows])
    cost = free.predict(NEW).cost_usd
    np.testing.assert_allclose(cost[:, 0], cost[:, 2], rtol=0.03)
    guess = fit(prompts, [{k: v for k, v in each.items() if k != "cost_usd"} for each in rows]).predict(NEW)
    assert (guess.cost_usd == 0).all()
    assert (guess.cost_p90 == 0).all()
    assert set(guess.choose(1.0)) <= {"coder", "counter", "dear"}
