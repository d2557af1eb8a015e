"""`lowpass bench routing` on a made-up set: who should win wins, also by learning online, and mistakes are named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from bench.routing import cascades, online, score
from bench.routing.data import Data, load
from bench.routing.figures import GOALS, Figure, Goal, figure
from bench.routing.online import Estimated, Learned
from bench.routing.report import Report, render
from bench.routing.run import BadData, Options, measure
from tests.bench.made import MODELS, Blind, ByWord, Fits, columns, written
from tests.tables import each_row


def run(folder: Path, fits: Fits | None = None, **options: Any) -> Report:
    return measure(Options([folder], [], "made", **{"resamples": 50, **options}), fits or Fits())


def one(report: Report, name: str, of: str = "router", at: float | None = None) -> Figure:
    return next(each for each in report.figures if (each.name, each.of, each.at) == (name, of, at))


def value(report: Report, name: str, of: str = "router", at: float | None = None) -> float:
    return cast(float, one(report, name, of, at).value)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return written(tmp_path, *columns())


def test_a_reader_of_texts_beats_labels_that_say_nothing(made: Path) -> None:
    report = run(made)
    assert value(report, "aiq_norm") > 0.5 > 0.1 > abs(value(report, "aiq_norm", "label lookup"))
    assert one(report, "aiq_norm", "router − lookup").passed
    assert value(report, "mean_harm") < -0.03
    assert value(report, "harm", "oracle", 0.05) < value(report, "harm", at=0.05) < 0
    assert value(report, "cost_usd", at=0.05) < 0.02
    assert report.best == {"0.05": "cheap", "0.25": "dear", "1": "dear", "4": "dear"}
    assert [single.target for single in report.singles] == ["cheap", "dear", "worst"]
    assert abs(value(report, "cost_bias")) < 0.05
    assert 0.7 < value(report, "cost_coverage") < 0.9
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert all(each.low is not None and each.high is not None for each in report.figures)
    assert all(each.low <= each.value <= each.high for each in report.figures if each.low and each.value and each.high)
    assert "question" not in msgspec.json.encode(report).decode()
    assert sum(sum(row.shares) for row in report.by_difficulty) == pytest.approx(4 * 12), "4 prices, 12 parts"
    assert render(report).endswith("| 4 | dear | ████████████ |\n")


def test_who_says_the_same_of_everything_is_random_mixing_does_no_harm_and_is_drawn(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "made.png"
    report = run(made, Fits(Blind), plot=path)
    assert (path.read_bytes()[:8], path.stat().st_size > 10_000) == (b"\x89PNG\r\n\x1a\n", True)
    assert abs(value(report, "aiq_norm")) < 0.05
    assert [value(report, name, at=4) for name in ("harm", "harm_to_pick")] == pytest.approx([0, 0], abs=1e-9)
    assert report.sound is False


def test_every_prompt_is_predicted_once_by_who_never_saw_it_or_its_label(made: Path) -> None:
    fits, few = Fits(), Fits()
    report = run(made, fits)
    assert list(fits.sizes()) == [192] * 5
    assert (report.prompts, report.scored) == (240, 240)
    assert {name for estimator in fits.made for name in estimator.read} == {"prompt_id", "prompt"}
    assert report.figures == run(made).figures != run(made, seed=1).figures
    limited = run(made, few, labels=50)
    assert (list(few.sizes()), limited.scored, limited.labels) == ([50], 190, 50), "labels bound what is learned from"


def test_a_benchmark_is_left_out_or_a_category_of_the_only_one(tmp_path: Path) -> None:
    fits, protocol = Fits(), "leave-one-benchmark-out"
    report = run(written(tmp_path, *columns(labels=("sums", "tales", "plans"))), fits, protocol=protocol)
    assert [(fold.name, fold.prompts) for fold in report.folds] == [("plans", 80), ("sums", 80), ("tales", 80)]
    assert (report.left_out, list(fits.sizes())) == ("one benchmark", [160] * 3)
    assert value(report, "aiq_norm") > 0.5
    prompts, rows = columns(labels=("sums",))
    prompts["category"] = [("even", "odd")[i % 2] for i in range(240)]
    report = run(written(tmp_path, prompts, rows), protocol=protocol, labels=30)
    assert (report.left_out, [fold.name for fold in report.folds]) == ("one category", ["even", "odd"])
    assert "one category" in render(report)


def test_of_two_models_whole_subjects_are_left_out_and_levels_of_folds_do_not_count(tmp_path: Path) -> None:
    """A blind router is a random one. Were its folds ranked together, it would seem worse."""
    prompts, rows = columns(600, labels=("exam",))
    prompts["category"] = [f"subject {i % 10}" for i in range(600)]
    folder, options = written(tmp_path, prompts, rows), {"protocol": "leave-one-benchmark-out"}
    blind, reader = (run(folder, Fits(kind), targets=["cheap", "dear"], **options) for kind in (Blind, ByWord))
    assert blind.left_out == "a fifth of the categories"
    assert [fold.prompts for fold in blind.folds] == [120] * 5
    assert value(blind, "apgr") == pytest.approx(0.5)
    assert value(reader, "apgr") > 0.7


def test_a_fold_that_is_worse_than_its_training_parts_pick_is_harmed(tmp_path: Path) -> None:
    """In one benchmark the words lie: what is called easy is hard."""
    prompts, rows = columns(600, labels=("sums", "tales", "lies"))
    swap = {"easy": "hard", "hard": "easy"}
    prompts["prompt"] = [
        " ".join([swap[text.split()[0]], *text.split()[1:]]) if label == "lies" else text
        for text, label in zip(prompts["prompt"], prompts["benchmark"], strict=True)
    ]
    report = run(written(tmp_path, prompts, rows), protocol="leave-one-benchmark-out")
    assert {fold.name: bool(fold.harmed) for fold in report.folds} == {"lies": True, "sums": False, "tales": False}
    assert not report.sound
    assert "clearly" in render(report)


def test_two_models_without_costs_are_compared_by_their_calls(tmp_path: Path) -> None:
    prompts, rows = columns()
    del rows["cost_usd"]
    report = run(written(tmp_path, prompts, rows), Fits(ByWordAlone), targets=["cheap", "dear"])
    assert value(report, "apgr") > 0.7
    assert one(report, "apgr").goal == Goal(low=0.65)
    assert value(report, "cpt50") < 0.4
    assert value(report, "accuracy") > 0.8
    assert {each.name for each in report.figures}.isdisjoint({"aiq", "harm", "cost_bias"})
    assert "only accuracy is compared" in render(report)


class ByWordAlone(ByWord):
    def _mean(self, text: str, target: str) -> tuple[float, float]:
        return super()._mean(text, target)[0], float("nan")


def test_what_was_not_observed_is_not_compared_and_a_sparse_set_chooses_among_what_was(tmp_path: Path) -> None:
    prompts, rows = columns()
    keep = [i for i in range(720) if (i // 3 + i) % 3]
    report = run(written(tmp_path, prompts, {name: [column[i] for i in keep] for name, column in rows.items()}))
    assert (len(report.targets), report.scored) == (3, 240)
    assert value(report, "aiq_norm") > 0.5
    assert all(each.goal is None for each in report.figures)
    assert "no goal is judged" in render(report)
    unpriced = [cost if model != "worst" else None for cost, model in zip(rows["cost_usd"], rows["model"], strict=True)]
    rows["cost_usd"], rows["score"][0] = unpriced, float("nan")
    report = run(written(tmp_path, prompts, rows))
    assert (report.targets, report.prompts, report.scored) == (("cheap", "dear"), 240, 239)
    assert any("worst" in note for note in report.notes)


def test_repeated_rows_are_averaged_and_strangers_left_out(tmp_path: Path) -> None:
    prompts, rows = columns()
    again = {"prompt_id": "p0", "model": "dear", "score": 1 - rows["score"][1], "cost_usd": 0.02}
    stranger = {"prompt_id": "who", "model": "dear", "score": 1.0, "cost_usd": 0.02}
    for name, column in rows.items():
        column += [again[name], stranger[name]]
    report = run(written(tmp_path, prompts, rows))
    assert any(note.startswith("1 repeated") for note in report.notes)
    assert any(note.startswith("1 rows without") for note in report.notes)
    dear = next(single for single in report.singles if single.target == "dear")
    assert dear.accuracy * 240 % 1 == pytest.approx(0.5)


def test_other_and_several_files_say_the_same(tmp_path: Path, made: Path) -> None:
    prompts, rows = columns()
    for part, table in (("prompts", prompts), ("rows", rows)):
        pa.csv.write_csv(pa.table(table), tmp_path / f"made.{part}.csv")
        lines = "\n".join(json.dumps(line) for line in pa.table(table).to_pylist())
        (tmp_path / f"made.{part}.jsonl").write_text(lines)
    for name, half in (("a", slice(0, 300)), ("b", slice(300, None))):
        written(tmp_path, prompts, {column: values[half] for column, values in rows.items()}, name)
    for names, kind in (("made", "csv"), ("made", "jsonl"), ("ab", "parquet")):
        paths = [tmp_path / f"{name}.rows.{kind}" for name in ([names] if names == "made" else names)]
        asked = tmp_path / f"{'made' if names == 'made' else 'a'}.prompts.{kind}"
        assert measure(Options(paths, [asked], resamples=50), Fits()).figures == run(made).figures, kind


@each_row(
    "goal, interval, passed",
    [
        (None, (0.02, 0.01, 0.04), None),
        (Goal(low=0.03), (0.02, 0.01, 0.04), False),
        (Goal(low=0.03, leniently=True), (0.02, 0.01, 0.04), True),
        (Goal(low=0.03, leniently=True), (0.02, 0.01, 0.025), False),
        (Goal(low=0.01, high=0.03), (0.02, 0.0, 0.04), True),
        (Goal(low=0.01, high=0.03), (0.031, 0.0, 0.04), False),
    ],
)
def test_goals(goal: Goal | None, interval: tuple[float, ...], passed: bool | None) -> None:
    middle, low, high = interval
    values = np.array([middle, *np.linspace(low, 2 * middle - low, 101), *np.linspace(2 * middle - high, high, 101)])
    values = np.array([middle, low, middle, high]) if goal and goal.leniently else values
    goals = {("x", "router"): goal} if goal else {}
    assert figure(goals, "x", values).passed is passed


Change = Callable[[dict[str, Any], dict[str, Any]], object]


@each_row(
    "change, options, message",
    [
        (lambda p, r: p.pop("prompt"), {}, "prompts.parquet: has no column prompt; it has prompt_id, benchmark"),
        (lambda p, r: r.pop("score"), {}, "rows.parquet: has no column score"),
        (lambda p, r: r.update(prompt_id=["x"] * 720), {}, "shares no prompt_id"),
        (lambda p, r: r.update(model=["cheap"] * 720), {}, "fewer than two models"),
        (lambda p, r: r.update(score=[2.0] * 720), {}, "scores outside 0 to 1"),
        (lambda p, r: r.update(score=["yes"] * 720), {}, "column score that is not all numbers"),
        (lambda p, r: r.update(cost_usd=[-1.0] * 720), {}, "negative or infinite"),
        (lambda p, r: r.update(cost_usd=[float("inf")] * 720), {}, "negative or infinite"),
        (lambda p, r: p.update(prompt_id=["p1"] * 240), {}, "same prompt_id"),
        (lambda p, r: None, {"targets": ["nobody"]}, "--targets: nobody is not in"),
        (lambda p, r: None, {"targets": ["cheap"]}, "fewer than two models"),
        (lambda p, r: None, {"protocol": "guess"}, "--protocol: does not know guess; choose of kfold"),
        (lambda p, r: None, {"protocol": "online", "labels": 9}, "--labels: means nothing online"),
        (lambda p, r: None, {"labels": 240}, "--labels: 240 leaves nothing to predict"),
        (lambda p, r: p.pop("benchmark"), {"protocol": "leave-one-benchmark-out"}, "no categories"),
        (lambda p, r: r.pop("cost_usd"), {"plot": Path("x.png")}, "--plot: made has no costs"),
        (lambda p, r: None, {"plot": Path("missing/x.png")}, "missing/x.png: can't be written"),
        (lambda p, r: [cells.__delitem__(slice(12, None)) for cells in r.values()], {}, "4 prompts, fewer than the 5"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    prompts, rows = columns()
    change(prompts, rows)
    fits = Fits(ByWord if "cost_usd" in rows else ByWordAlone)
    with pytest.raises(BadData) as error:
        run(written(tmp_path, prompts, rows), fits, **options)
    assert message in str(error.value)
    assert "question" not in str(error.value)


@each_row("name", ["p", "cost_usd"])
def test_an_estimate_that_is_no_number_is_a_mistake_and_a_refusal_is_named(made: Path, name: str) -> None:
    class Broken(ByWord):
        def predict(self, prompts: pa.Table) -> Any:
            predicted = super().predict(prompts)
            getattr(predicted, name)[:, list(MODELS).index("dear")] = np.nan
            return predicted

    def refuse(*_: object, **__: object) -> ByWord:
        raise ValueError("rows: column 'score' holds no score")

    with pytest.raises(BadData, match=f"{name} is not finite in 33.3%"):
        run(made, Fits(Broken))
    with pytest.raises(BadData, match="made, 192 prompts to learn from: rows: column 'score'"):
        measure(Options([made], [], "made"), refuse)


@each_row("room, passed", [(0.8, {300: True, 1500: False}), (0.2, {300: True, 1500: None})])
def test_what_was_learned_is_judged_where_there_is_head_room(room: float, passed: dict[int, bool | None]) -> None:
    by_mark = {300: Estimated(0.01, -0.05, 0.07), 1500: Estimated(-0.02, -0.04, 0.0)}
    found = Learned(failure_usd=1.0, best="dear", room=room, frozen=by_mark, paid=by_mark, regret_usd=by_mark, orders=5)
    figures = list(score.learned(found, GOALS["online"]))
    assert {mark: next(one.passed for one in figures if one.name == f"harm_after_{mark}") for mark in passed} == passed
    assert [one.name for one in figures if one.name.startswith("regret")] == ["regret_by_300", "regret_by_1500"]


MARKS = (60, 300)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = written(tmp_path_factory.mktemp("made"), *columns(480))
    return load([folder], [folder], "made")


def test_it_ends_near_the_best_model_of_each_price_and_what_learning_cost_is_seen_in_what_was_paid(data: Data) -> None:
    learned = online.run(data, values=(0.01, 1.0), orders=3, checkpoints=MARKS)
    assert [one.best for one in learned] == ["cheap", "dear"]
    for one in learned:
        assert 0 < one.room < 1
        assert list(one.frozen) == list(one.paid) == list(one.regret_usd) == list(MARKS)
        assert one.frozen[300].value < 0.15
    dear, pairs = learned[1], cascades.run(data, price=1.0, orders=3, checkpoints=MARKS)
    assert dear.paid[60].value > dear.paid[300].value
    assert dear.regret_usd[60].value > 0
    assert pairs.best == "dear"
    assert pairs.paid[300].value < min(0.0, dear.paid[300].value), "a cascade learns too and pays less"


def test_progress_is_advanced_for_each_order_and_the_same_seed_gives_the_same_run(data: Data) -> None:
    for run, count in ((online.run, 8), (cascades.run, 2)):
        advanced: list[None] = []
        run(data, orders=2, checkpoints=(3,), advance=lambda: advanced.append(None))  # noqa: B023
        assert len(advanced) == count
    runs = [online.run(data, values=(1.0,), orders=2, checkpoints=(30,), seed=seed) for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]
    found = online.estimated([1.0, 3.0])
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 - 12.71, 2 + 12.71)), "of the mean over orders"
    assert online.estimated([1.0]).high == float("inf")
