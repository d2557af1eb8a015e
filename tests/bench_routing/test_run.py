"""`lowpass bench routing` on a made-up set: who should win wins, and what is wrong is said."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from bench.routing.figures import GOALS, Figure, Goal, figure
from bench.routing.online import Estimated, Learned
from bench.routing.report import Report, render
from bench.routing.run import BadData, Options, measure
from bench.routing.score import learned
from tests.bench_routing.made import MODELS, Blind, ByWord, Fits, columns, written
from tests.gateway.running import ROOT


def run(folder: Path, fits: Fits | None = None, **options: Any) -> Report:
    return measure(Options([folder], [], "made", **{"resamples": 50, **options}), fits or Fits())


def one(report: Report, name: str, of: str = "router", at: float | None = None) -> Figure:
    return next(each for each in report.figures if (each.name, each.of, each.at) == (name, of, at))


def value(report: Report, name: str, of: str = "router", at: float | None = None) -> float:
    found = one(report, name, of, at).value
    assert found is not None
    return found


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return written(tmp_path, *columns())


def test_a_reader_of_texts_beats_labels_that_say_nothing(made: Path) -> None:
    report = run(made)
    assert value(report, "aiq_norm") > 0.5
    assert abs(value(report, "aiq_norm", "label lookup")) < 0.1
    assert one(report, "aiq_norm", "router − lookup").passed
    assert value(report, "mean_harm") < -0.03
    assert value(report, "harm", "oracle", 0.05) < value(report, "harm", at=0.05) < 0
    assert value(report, "cost_usd", at=0.05) < 0.02
    assert report.best == {"0.05": "cheap", "0.25": "dear", "1": "dear", "4": "dear"}
    assert [single.target for single in report.singles] == ["cheap", "dear", "worst"]
    assert abs(value(report, "cost_bias")) < 0.05
    assert 0.7 < value(report, "cost_coverage") < 0.9


def test_who_says_the_same_of_everything_is_random_mixing_and_does_no_harm(made: Path) -> None:
    report = run(made, Fits(Blind))
    assert abs(value(report, "aiq_norm")) < 0.05
    assert value(report, "harm", at=4) == pytest.approx(0, abs=1e-9)
    assert value(report, "harm_to_pick", at=4) == pytest.approx(0, abs=1e-9)
    assert report.sound is False


def test_every_prompt_is_predicted_once_by_who_never_saw_it_or_its_label(made: Path) -> None:
    fits = Fits()
    report = run(made, fits)
    assert list(fits.sizes()) == [192] * 5
    assert (report.prompts, report.scored) == (240, 240)
    assert {name for estimator in fits.made for name in estimator.read} == {"prompt_id", "prompt"}


def test_the_same_seed_gives_the_same_numbers(made: Path) -> None:
    first, again, other = run(made), run(made), run(made, seed=1)
    assert first.figures == again.figures
    assert first.figures != other.figures


def test_labels_bound_what_is_learned_from(made: Path) -> None:
    fits = Fits()
    report = run(made, fits, labels=50)
    assert (list(fits.sizes()), report.scored, report.labels) == ([50], 190, 50)


def test_a_benchmark_is_left_out(tmp_path: Path) -> None:
    prompts, rows = columns(labels=("sums", "tales", "plans"))
    fits = Fits()
    report = run(written(tmp_path, prompts, rows), fits, protocol="leave-one-benchmark-out")
    assert [(fold.name, fold.prompts) for fold in report.folds] == [("plans", 80), ("sums", 80), ("tales", 80)]
    assert report.left_out == "one benchmark"
    assert list(fits.sizes()) == [160] * 3
    assert value(report, "aiq_norm") > 0.5


def test_where_there_is_one_benchmark_a_category_is_left_out(tmp_path: Path) -> None:
    prompts, rows = columns(labels=("sums",))
    prompts["category"] = [("even", "odd")[i % 2] for i in range(240)]
    report = run(written(tmp_path, prompts, rows), protocol="leave-one-benchmark-out", labels=30)
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
    """Without costs."""

    def _mean(self, text: str, target: str) -> tuple[float, float]:
        return super()._mean(text, target)[0], float("nan")


def test_what_was_not_observed_is_not_compared(tmp_path: Path) -> None:
    prompts, rows = columns()
    unpriced = [cost if model != "worst" else None for cost, model in zip(rows["cost_usd"], rows["model"], strict=True)]
    rows["cost_usd"], rows["score"][0] = unpriced, float("nan")
    report = run(written(tmp_path, prompts, rows))
    assert report.targets == ("cheap", "dear")
    assert (report.prompts, report.scored) == (240, 239)
    assert any("worst" in note for note in report.notes)


def test_a_sparse_set_chooses_among_what_was_observed(tmp_path: Path) -> None:
    prompts, rows = columns()
    keep = [i for i in range(720) if (i // 3 + i) % 3]
    report = run(written(tmp_path, prompts, {name: [column[i] for i in keep] for name, column in rows.items()}))
    assert (len(report.targets), report.scored) == (3, 240)
    assert value(report, "aiq_norm") > 0.5
    assert all(each.goal is None for each in report.figures)
    assert "no goal is judged" in render(report)


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


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_other_files_say_the_same(tmp_path: Path, made: Path, kind: str) -> None:
    prompts, rows = columns()
    paths = {}
    for part, table in (("prompts", prompts), ("rows", rows)):
        paths[part] = tmp_path / f"made.{part}.{kind}"
        if kind == "csv":
            pa.csv.write_csv(pa.table(table), paths[part])
        else:
            paths[part].write_text("\n".join(json.dumps(line) for line in pa.table(table).to_pylist()))
    again = measure(Options([paths["rows"]], [paths["prompts"]], resamples=50), Fits())
    assert again.figures == run(made).figures


def test_several_files_are_one_set(tmp_path: Path) -> None:
    prompts, rows = columns()
    half = {name: column[:300] for name, column in rows.items()}, {name: column[300:] for name, column in rows.items()}
    written(tmp_path, prompts, half[0], "a")
    written(tmp_path, prompts, half[1], "b")
    both = [tmp_path / "a.rows.parquet", tmp_path / "b.rows.parquet"]
    again = measure(Options(both, [tmp_path / "a.prompts.parquet"], resamples=50), Fits())
    assert again.figures == run(written(tmp_path, prompts, rows)).figures


def test_the_document_is_whole(made: Path) -> None:
    report = run(made)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert all(each.low is not None and each.high is not None for each in report.figures)
    assert all(each.low <= each.value <= each.high for each in report.figures if each.low and each.value and each.high)
    assert "question" not in msgspec.json.encode(report).decode()


def test_a_picture_is_drawn(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "made.png"
    run(made, plot=path, resamples=0)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("goal", "interval", "passed"),
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


@pytest.mark.parametrize(
    ("change", "options", "said"),
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
        (lambda p, r: None, {"plot": Path("/nowhere/x.png")}, "/nowhere/x.png: can't be written"),
        (
            lambda p, r: [column.__delitem__(slice(12, None)) for column in r.values()],
            {},
            "4 prompts, fewer than the 5",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: Change, options: dict[str, Any], said: str) -> None:
    prompts, rows = columns()
    change(prompts, rows)
    fits = Fits(ByWord if "cost_usd" in rows else ByWordAlone)
    with pytest.raises(BadData) as error:
        run(written(tmp_path, prompts, rows), fits, **options)
    assert said in str(error.value)
    assert "question" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [("p", "p is not finite in 33.3%"), ("cost_usd", "cost_usd is not finite in 33.3%")],
)
def test_an_estimate_that_is_no_number_is_a_mistake(made: Path, name: str, said: str) -> None:
    class Broken(ByWord):
        def predict(self, prompts: pa.Table) -> Any:
            found = super().predict(prompts)
            getattr(found, name)[:, list(MODELS).index("dear")] = np.nan
            return found

    with pytest.raises(BadData, match=said):
        run(made, Fits(Broken))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rows", "{made}"], "is a folder; say which of its sets with --set NAME"),
        (["--rows", "{made}", "--set", "other"], "has no other.rows"),
        (["--rows", "{made}/none.parquet"], "none.parquet: does not exist"),
        (["--rows", "{made}/made.txt"], "of an unknown kind"),
        (["--rows", "{made}/broken.parquet"], "not sound parquet"),
    ],
)
def test_the_command_fails_with_one_line(made: Path, options: list[str], said: str) -> None:
    (made / "made.txt").touch()
    (made / "broken.parquet").write_bytes(b"PAR1 no")
    argv = [sys.executable, "-m", "router.cli", "bench", "routing", *(each.format(made=made) for each in options)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=55)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lowpass: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_what_the_estimator_refuses_is_said(made: Path) -> None:
    def refuse(*_: object, **__: object) -> ByWord:
        raise ValueError("rows: column 'score' holds no score")

    with pytest.raises(BadData, match="made, 192 prompts to learn from: rows: column 'score'"):
        measure(Options([made], [], "made"), refuse)


@pytest.mark.parametrize(("room", "passed"), [(0.8, {300: True, 1500: False}), (0.2, {300: True, 1500: None})])
def test_what_was_learned_is_judged_where_there_is_head_room(room: float, passed: dict[int, bool | None]) -> None:
    by_mark = {300: Estimated(0.01, -0.05, 0.07), 1500: Estimated(-0.02, -0.04, 0.0)}
    found = Learned(failure_usd=1.0, best="dear", room=room, frozen=by_mark, paid=by_mark, regret_usd=by_mark, orders=5)
    figures = list(learned(found, GOALS["online"]))
    assert {mark: next(one.passed for one in figures if one.name == f"harm_after_{mark}") for mark in passed} == passed
    assert [one.name for one in figures if one.name.startswith("regret")] == ["regret_by_300", "regret_by_1500"]
