"""The priors that ship: whole or refused, of the looks that are taken today; what they expect of a target's card."""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from router.features.look import SIZE, look
from router.priors import PriorsError, load
from router.priors.ability import ABILITIES, FACTS, Ability, Card, ability, card, facts
from router.priors.build import main, pack
from router.priors.fitting.sets import SHIPPABLE, digests
from router.priors.marks import STEMS, marks
from router.priors.phrases import phrases
from router.priors.priors import ARRAYS, FOLDER, INTERACTIONS, LOGIT, MANIFEST, MOST_WORK, TASKS, TRAITS, read
from router.types.price import WORST_CASE
from router.types.target import Benchmark, Contract, Target, Thinking
from router.types.task import Task
from tests.decide.values import LOCAL, PRICE, target
from tests.tables import each_row

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


SHIPPED = (FOLDER / ARRAYS).read_bytes()
MIDDLE = len(SHIPPED) // 2
DAMAGES: dict[str, tuple[str, bytes | None]] = {
    "cut": (ARRAYS, SHIPPED[:1_000]),
    "flipped": (ARRAYS, SHIPPED[:MIDDLE] + bytes([SHIPPED[MIDDLE] ^ 1]) + SHIPPED[MIDDLE + 1 :]),
    "lost": (ARRAYS, None),
    "old": (MANIFEST, msgspec.json.encode(MANIFEST_TEXT | {"format": 0})),
    "spoilt": (MANIFEST, b"{"),
}


@each_row("file, data", DAMAGES.values(), ids=[*DAMAGES])
def test_a_damaged_artefact_is_refused_and_says_what_to_do(tmp_path: Path, file: str, data: bytes | None) -> None:
    for name in (ARRAYS, MANIFEST):
        shutil.copy(FOLDER / name, tmp_path)
    assert read(tmp_path).version == load().version
    (tmp_path / file).unlink()
    if data is not None:
        (tmp_path / file).write_bytes(data)
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
    error = capsys.readouterr().err
    assert all(name in error for name in SHIPPABLE)


@each_row(
    "words, tasks",
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


@each_row("text", ["", "Prove it.", "def f(): ...\n" * 40, "Übersetze das: " + "wort " * 300, "字" * 500])
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


def test_the_same_seed_gives_the_same_phrases() -> None:
    assert phrases(1) == phrases(1)
    assert phrases(1) != phrases(2)


def test_each_task_has_phrases_on_both_sides() -> None:
    counts = Counter((phrase.task, phrase.held_out) for phrase in phrases(0))
    tasks = {task for task, _ in counts}
    assert tasks == set(Task) - {Task.TOOL_USE, Task.EMBEDDING, Task.GUARD}
    assert all(counts[task, side] >= 10 for task in tasks for side in (True, False))


def test_no_phrase_is_on_both_sides_and_no_blank_is_left() -> None:
    made = phrases(0)
    held = {phrase.text for phrase in made if phrase.held_out}
    assert not held & {phrase.text for phrase in made if not phrase.held_out}
    assert not [phrase.text for phrase in made for blank in ("{topic}", "{text}", "{ask}") if blank in phrase.text]


def expected(**known: Any) -> Ability:
    return ability(load(), facts(Card(**({"scores": {}} | known))))


def spread(found: Ability) -> float:
    return float(np.sqrt(np.trace(found.covariance)))


@each_row(
    "weaker, stronger",
    [
        ({"active_b": 3, "parameters_b": 3}, {"active_b": 70, "parameters_b": 70}),
        ({"rate": 300_000_000}, {"rate": 15_000_000_000}),
        ({"scores": {Benchmark.MMLU_PRO: 0.3}}, {"scores": {Benchmark.MMLU_PRO: 0.8}}),
        ({"scores": {Benchmark.SIMPLEQA: 0.1}}, {"scores": {Benchmark.SIMPLEQA: 0.6}}),
        ({"thinking": 0}, {"thinking": 24_576}),
    ],
)
def test_larger_dearer_and_better_scored_models_can_do_more(weaker: dict[str, Any], stronger: dict[str, Any]) -> None:
    assert expected(**weaker).mean.mean() < expected(**stronger).mean.mean()


def test_each_fact_makes_it_surer() -> None:
    nothing, size = expected(), expected(active_b=70, parameters_b=70)
    scored = expected(active_b=70, parameters_b=70, scores={Benchmark.MMLU_PRO: 0.56})
    assert spread(nothing) > spread(size) > spread(scored) > 0


def test_of_a_target_without_facts_nothing_is_expected_but_the_mean() -> None:
    assert expected().mean == pytest.approx(load().card_mean[:4])


@each_row("score", [0.0, 1.0])
def test_a_score_of_none_or_all_is_no_infinity(score: float) -> None:
    assert np.isfinite(expected(scores={Benchmark.CRUX: score}).mean).all()


THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "low", "high"), tokens=(0, 1_024, 24_576))


@each_row(
    "effort, thinking, tokens",
    [("low", THINKS, 1_024), ("none", THINKS, 0), (None, THINKS, 24_576), (None, Thinking(), 0)],
)
def test_the_effort_says_how_much_is_thought(effort: str | None, thinking: Thinking, tokens: int) -> None:
    plain = target(thinking=thinking)
    asked = Target(id="t", model=plain.model, provider=plain.provider, base_url=plain.base_url, effort=effort)
    assert card(asked).thinking == tokens


UNPRICED = [target(provider=LOCAL), target(price=None), target(price=WORST_CASE)]


@each_row("asked, rate", [(target(), PRICE.output), *((asked, None) for asked in UNPRICED)])
def test_a_price_that_is_no_price_says_nothing(asked: Target, rate: int | None) -> None:
    assert card(asked).rate == rate
