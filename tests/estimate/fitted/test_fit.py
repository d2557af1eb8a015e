"""The offline estimator: what it says of prompts, and what it makes of bad tables."""

from typing import Any

import numpy as np
import pytest

from router import estimate
from router.estimate import Estimator, fit

SUMS = "What is {a} plus {b} times {c}? Give only the number."
CODE = "Write a Python function def f_{a}(x, y): that returns x ** {b} + y // {c}; no text around it."


def _tables(n: int = 240) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Two kinds of prompts: `coder` is right on code, `counter` on sums, `dear` on both for ten times the price."""
    rng = np.random.default_rng(7)
    prompts, rows = [], []
    for at in range(n):
        code = at % 2
        a, b, c = rng.integers(1, 999, 3)
        text = (CODE if code else SUMS).format(a=a, b=b, c=c)
        prompts.append({"prompt_id": f"q{at}", "prompt": text, "benchmark": "code" if code else "sums"})
        for model, chance, cost in (
            ("coder", 0.9 if code else 0.2, 0.001),
            ("counter", 0.2 if code else 0.9, 0.001),
            ("dear", 0.92, 0.01),
        ):
            price = cost * float(np.exp(0.2 * rng.standard_normal()))
            rows.append(
                {"prompt_id": f"q{at}", "model": model, "score": float(rng.random() < chance), "cost_usd": price}
            )
    return prompts, rows


@pytest.fixture(scope="module")
def tables() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return _tables()


@pytest.fixture(scope="module")
def fitted(tables: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> Estimator:
    return fit(*tables)


NEW = [
    {"prompt": CODE.format(a=5, b=6, c=7)},
    {"prompt": SUMS.format(a=5, b=6, c=7)},
]


def test_learns_who_is_right_on_what(fitted: Estimator) -> None:
    said = fitted.predict(NEW)
    assert fitted.targets == ("coder", "counter", "dear")
    assert said.p.shape == said.p_sd.shape == said.cost_usd.shape == (2, 3)
    assert said.p.dtype == said.cost_usd.dtype == np.float64
    np.testing.assert_allclose(said.p[:, :2], [[0.9, 0.2], [0.2, 0.9]], atol=0.15)
    np.testing.assert_allclose(said.cost_usd, [[0.001, 0.001, 0.01]] * 2, rtol=0.25)
    assert ((said.cost_p10 < said.cost_usd) & (said.cost_usd < said.cost_p90)).all()
    assert ((said.p_sd > 0) & (said.p_sd < 0.3)).all()


@pytest.mark.parametrize(("price", "expected"), [(0.05, ["coder", "counter"]), (50.0, ["dear", "dear"])])
def test_chooses_by_the_price_of_a_failure(fitted: Estimator, price: float, expected: list[str]) -> None:
    chosen = fitted.predict(NEW).choose(price)
    assert chosen.tolist() == expected


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_no_choice_at_an_impossible_price(fitted: Estimator, price: float) -> None:
    with pytest.raises(ValueError, match="failure_cost_usd"):
        fitted.predict(NEW).choose(price)


def test_strangers_are_told_from_acquaintances(fitted: Estimator) -> None:
    strange = [{"prompt": "Übersetze: Die Würde des Menschen ist unantastbar."}, {"prompt": "  "}, {"prompt": None}]
    unfamiliarity = fitted.predict([*NEW, *strange]).unfamiliarity
    assert unfamiliarity[:2].max() < unfamiliarity[2:].min()
    assert unfamiliarity[3:].tolist() == [1.0, 1.0]


def test_labels_guide_the_fit_but_no_prediction(fitted: Estimator) -> None:
    mislabelled = [prompt | {"benchmark": "sums", "category": "x"} for prompt in NEW]
    np.testing.assert_array_equal(fitted.predict(mislabelled).p, fitted.predict(NEW).p)


def test_same_tables_same_estimates(tables: Any, fitted: Estimator) -> None:
    np.testing.assert_array_equal(fit(*tables).predict(NEW).p, fitted.predict(NEW).p)


@pytest.mark.parametrize("form", ["pandas", "pyarrow", "columns"])
def test_tables_of_any_form(tables: Any, fitted: Estimator, form: str) -> None:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frames = [pd.DataFrame(table) for table in tables]
    make = {"pandas": lambda x: x, "pyarrow": pa.Table.from_pandas, "columns": lambda x: x.to_dict("list")}[form]
    same = fit(*(make(frame) for frame in frames)).predict(make(pd.DataFrame(NEW)))
    np.testing.assert_allclose(same.p, fitted.predict(NEW).p)
    np.testing.assert_allclose(same.cost_usd, fitted.predict(NEW).cost_usd)


def test_targets_in_the_order_that_is_asked_for(tables: Any, fitted: Estimator) -> None:
    prompts, rows = tables
    two = fit(prompts, rows, targets=["dear", "coder"])
    assert two.targets == ("dear", "coder")
    assert two.ignored == {"rows_of_other_targets": 240}
    assert two.predict(NEW).p.shape == (2, 2)


def test_outcomes_move_the_estimate_and_narrow_it(tables: Any) -> None:
    learner = fit(*tables)
    before = learner.predict(NEW)
    learner.update([f"q{at}" for at in range(120)], "coder", 0.0, 0.004)
    after = learner.predict(NEW)
    assert (after.p[:, 0] < before.p[:, 0] - 0.05).all()
    assert (after.p_sd[:, 0] < before.p_sd[:, 0]).all()
    assert (after.cost_usd[:, 0] > 2 * before.cost_usd[:, 0]).all()
    assert np.abs(after.p - before.p)[:, 2].max() < np.abs(after.p - before.p)[:, 0].max() / 4


def test_outcomes_that_teach_nothing_are_counted(tables: Any) -> None:
    learner = fit(*tables)
    learner.update("q1", "coder", 1.0)
    after_one = learner.predict(NEW).p
    learner.update("q1", "coder", 0.0)
    learner.update("nobody", "coder", 1.0)
    learner.update("q2", "coder", float("nan"))
    np.testing.assert_array_equal(learner.predict(NEW).p, after_one)
    assert learner.ignored == {
        "updates_repeated": 1,
        "updates_of_unknown_prompts": 1,
        "updates_without_outcome": 1,
    }


@pytest.mark.parametrize(
    ("target", "score", "cost", "message"),
    [
        ("nobody", 1.0, 0.1, "nobody"),
        ("coder", 2.0, 0.1, "score"),
        ("coder", 1.0, -0.1, "cost_usd"),
        ("coder", 1.0, float("inf"), "cost_usd"),
        ("coder", [1.0, 0.0], 0.1, "score"),
    ],
)
def test_impossible_outcomes_are_refused(fitted: Estimator, target: str, score: Any, cost: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted.update("q3", target, score, cost)


ONE = [{"prompt_id": "a", "prompt": "Hello"}]


@pytest.mark.parametrize(
    ("prompts", "rows", "message"),
    [
        ([{"prompt_id": "a"}], [], "'prompt'"),
        ([{"prompt": "Hello"}], [], "'prompt_id'"),
        (ONE, [{"prompt_id": "a", "model": "m"}], "'score'"),
        (ONE, [{"prompt_id": "a", "score": 1.0}], "'model'"),
        (ONE, [{"prompt_id": "a", "model": "m", "score": float("nan")}], "'score'"),
        (ONE, [{"prompt_id": "a", "model": "m", "score": 7.0}], "'score'"),
        (ONE, [{"prompt_id": "a", "model": "m", "score": "good"}], "'score'"),
        (ONE, [{"prompt_id": "a", "model": "m", "score": 1.0, "cost_usd": float("inf")}], "'cost_usd'"),
        (ONE, [{"prompt_id": "a", "model": "m", "score": 1.0, "cost_usd": -1.0}], "'cost_usd'"),
        (ONE, [{"prompt_id": "b", "model": "m", "score": 1.0}], "nothing can be fitted"),
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


def test_unknown_target_is_named(tables: Any) -> None:
    with pytest.raises(ValueError, match="'gpt'"):
        fit(tables[0], tables[1], targets=["coder", "gpt"])


def test_what_is_not_used_is_counted(tables: Any) -> None:
    prompts, rows = tables
    odd = [
        rows[0],
        {"prompt_id": "q1", "model": "coder", "score": None, "cost_usd": None},
        {"prompt_id": "nobody", "model": "coder", "score": 1.0, "cost_usd": 0.1},
        {"prompt_id": "q1", "model": "silent", "score": float("nan"), "cost_usd": 0.1},
    ]
    found = fit([*prompts, prompts[0], {"prompt_id": "empty", "prompt": ""}], [*rows, *odd])
    assert found.targets == ("coder", "counter", "dear")
    assert found.ignored == {
        "prompts_repeated": 1,
        "prompts_without_text": 1,
        "rows_averaged": 2,
        "rows_without_score": 2,
        "rows_of_unknown_prompts": 1,
        "rows_of_other_targets": 1,
        "targets_without_scores": 1,
    }


@pytest.mark.parametrize("cost", [None, 0.5])
def test_one_row_is_enough_but_says_little(cost: float | None) -> None:
    found = fit(ONE, [{"prompt_id": "a", "model": "m", "score": 1.0, "cost_usd": cost}]).predict(ONE)
    assert 0.5 < found.p[0, 0] < 0.95
    assert found.p_sd[0, 0] > 0.1
    assert found.cost_usd[0, 0] == pytest.approx(cost or 0.0)
    assert found.choose(1.0).tolist() == ["m"]


def test_a_target_without_price_never_wins_by_it(tables: Any) -> None:
    prompts, rows = tables
    free = [row | {"cost_usd": None} if row["model"] == "coder" else row for row in rows]
    said = fit(prompts, free).predict(NEW)
    np.testing.assert_allclose(said.cost_usd[:, 0], said.cost_usd[:, 2])


def test_without_any_cost_all_compare_as_free(tables: Any) -> None:
    prompts, rows = tables
    said = fit(prompts, [{k: v for k, v in row.items() if k != "cost_usd"} for row in rows]).predict(NEW)
    assert (said.cost_usd == 0).all()
    assert (said.cost_p90 == 0).all()
    assert set(said.choose(1.0)) <= {"coder", "counter", "dear"}


def test_gaps_do_not_make_a_target_look_better() -> None:
    """One that was only asked what all get right is not taken for the best."""
    prompts, rows = _tables()
    ease = [row | {"score": 1.0} if int(row["prompt_id"][1:]) % 2 else row | {"score": 0.0} for row in rows]
    lucky = [{"prompt_id": f"q{at}", "model": "lucky", "score": 1.0, "cost_usd": 0.001} for at in range(1, 240, 2)]
    found = fit(prompts, ease + lucky)
    assert found.predict(NEW).p[1, found.targets.index("lucky")] < 0.4


def test_names_are_read_when_first_asked_for() -> None:
    assert set(estimate.__all__) == {"Estimator", "Prediction", "fit"}
    with pytest.raises(AttributeError, match="nothing"):
        estimate.nothing  # noqa: B018
