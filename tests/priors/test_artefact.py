"""The artefact that ships: whole or refused, of the looks that are taken today, the same from the same numbers."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from router.features.look import SIZE, look
from router.priors import PriorsError, load
from router.priors.ability import ABILITIES, FACTS
from router.priors.build import main, pack
from router.priors.fitting.sets import SHIPPABLE, digests
from router.priors.marks import STEMS, marks
from router.priors.priors import ARRAYS, FOLDER, INTERACTIONS, LOGIT, MANIFEST, MOST_WORK, TASKS, TRAITS, read

DATA = Path(os.environ.get("LOWPASS_DATA", FOLDER.parents[2] / "shared" / "data"))
MANIFEST_TEXT: dict[str, Any] = msgspec.json.decode((FOLDER / MANIFEST).read_bytes())


def test_it_was_fitted_to_the_looks_that_are_taken_today() -> None:
    priors = load()
    assert priors.centre.shape == priors.scale.shape == (SIZE,), "the features have changed: make priors"
    assert priors.card_mean.shape == (ABILITIES + len(FACTS),)
    assert priors.variances.shape == (2, TRAITS)
    assert np.isfinite(priors.projection).all()


def test_it_is_small_and_of_sets_that_may_ship() -> None:
    assert (FOLDER / ARRAYS).stat().st_size < 5_000_000
    assert set(MANIFEST_TEXT["sources"]) == set(SHIPPABLE)
    assert {file.split(".")[0] for file in MANIFEST_TEXT["inputs_sha256"]} == set(SHIPPABLE)
    assert {row["licence"] for row in MANIFEST_TEXT["sources"].values()} <= {"MIT", "Apache-2.0"}


def test_what_was_measured_is_good_enough_to_ship() -> None:
    metrics = MANIFEST_TEXT["metrics"]
    assert max(metrics["difficulty"]["ece_set_left_out"].values()) <= 0.07
    assert metrics["tasks"]["held_out_asks_and_texts"]["all"] >= 0.6
    assert metrics["tasks"]["held_out_public_prompts"]["all"] >= 0.9
    known = metrics["abilities"]["spread_logits"]
    blind = metrics["abilities"]["rmse_model_left_out_without_scores"]
    assert all(error < spread for error, spread in zip(blind, known, strict=True)), "cards tell nothing"


def cut(folder: Path) -> None:
    (folder / ARRAYS).write_bytes((folder / ARRAYS).read_bytes()[:1_000])


def flip(folder: Path) -> None:
    data = bytearray((folder / ARRAYS).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / ARRAYS).write_bytes(data)


def age(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(msgspec.json.encode(MANIFEST_TEXT | {"format": 0}))


def spoil(folder: Path) -> None:
    (folder / MANIFEST).write_text("{")


def lose(folder: Path) -> None:
    (folder / ARRAYS).unlink()


@pytest.mark.parametrize("harm", [cut, flip, age, spoil, lose])
def test_a_damaged_artefact_is_refused_and_says_what_to_do(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    for name in (ARRAYS, MANIFEST):
        shutil.copy(FOLDER / name, tmp_path)
    assert read(tmp_path).version == load().version
    harm(tmp_path)
    with pytest.raises(PriorsError, match=r"install lowpass again"):
        read(tmp_path)


def test_the_same_numbers_give_the_same_bytes() -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3, np.float16)}
    assert pack(arrays) == pack(arrays)


def test_without_the_sets_the_builder_says_which_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path)])
    told = capsys.readouterr().err
    assert all(name in told for name in SHIPPABLE)


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        ("Please summarise this.", {"summary"}),
        ("ÜBERSETZE das auf Englisch", {"translation"}),
        ("请翻译成英语", {"translation"}),
        ("nothing to see", set()),
        ("summary " + "x" * 2_000, {"summary"}),
        ("x" * 1_000 + " summary " + "x" * 1_000, set()),
    ],
)
def test_marks_are_words_near_the_ends_of_a_text(words: str, tasks: set[str]) -> None:
    assert {task.value for task, mark in zip(STEMS, marks(words), strict=True) if mark} == tasks


def test_reading_gives_shares_of_all_tasks() -> None:
    text = "Is this review positive or negative?"
    numbers = load().read(look(text), marks(text))
    assert numbers.tasks.shape == (len(TASKS),)
    assert numbers.tasks.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "text", ["", "Prove it.", "def f(): ...\n" * 40, "Übersetze das: " + "wort " * 300, "字" * 500]
)
def test_what_is_read_is_what_the_arrays_say_in_double_precision(text: str) -> None:
    priors, tasks = load(), 3 + INTERACTIONS
    numbers = priors.read(look(text), marks(text))
    scaled = (look(text).astype(np.float64) - priors.centre) * priors.scale
    columns = scaled @ priors.projection.astype(np.float64) + priors.offset
    raised = np.exp(columns[tasks : tasks + len(TASKS)] + marks(text) @ priors.marks.astype(np.float64))
    point, inside = columns[tasks + len(TASKS) :], priors.centroids.astype(np.float64)
    distance = (priors.sizes - 2 * inside @ point).min() + scaled @ scaled
    strange = 1 / (1 + np.exp(-priors.strange[0] - priors.strange[1] * np.log(1e-6 + distance * priors.strange[2])))
    hard = np.clip(columns[0] + (1 - strange) * columns[1], -LOGIT, LOGIT)
    assert numbers.unfamiliarity == pytest.approx(strange, rel=1e-3)
    assert numbers.difficulty == pytest.approx(1 / (1 + np.exp(-hard)), rel=1e-4)
    assert numbers.tasks == pytest.approx(raised / raised.sum(), rel=1e-3)
    assert numbers.interactions == pytest.approx(np.clip(columns[3:tasks], -1, 1), abs=1e-4)
    assert numbers.work == pytest.approx(np.exp(np.clip(columns[2], -MOST_WORK, MOST_WORK)), rel=1e-4)


@pytest.mark.skipif(not (DATA / f"{SHIPPABLE[0]}.rows.parquet").exists(), reason="the public sets are not here")
def test_the_inputs_are_those_that_the_manifest_names() -> None:
    assert digests(DATA, SHIPPABLE) == MANIFEST_TEXT["inputs_sha256"]
