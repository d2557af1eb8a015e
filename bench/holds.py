"""How tight holds are: replays answers that real models gave against what would have been held for each.

    python -m bench.holds [--json] [--shuffles 5]

Reads two parquet files from $LOWPASS_DATA, else from ../shared/data; needs pyarrow. One request after another:
estimate, hold `tight`, let the answer grow, extend as the gateway does, settle, learn. Held is the largest hold of a
request. The figures are of the half of the prompts that no constant was chosen on.

What the data does not have is drawn: bytes per token of an answer, by which a stream is metered (normal, 4.2 ± 0.5).
"""

import argparse
import importlib
import importlib.util
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, median

import msgspec
from msgspec import Struct, structs

from adapters.catalog import shipped
from router.api.parse import parse
from router.classify.difficulty import read_difficulty
from router.dispatch.meter import STEP
from router.estimate.estimate import affordable_output, fit, worst_cost
from router.estimate.forecast import Forecaster, ForecastInput
from router.estimate.learn import EXTEND, TargetStats
from router.estimate.pass_rate import PassRateModel
from router.estimate.price import charge
from router.types.attempt import AttemptSample, TextBytes, Usage
from router.types.decision import Candidate
from router.types.request import Endpoint, Request
from router.types.target import AbandonedAnswer, Target

DATA = "frontier_2026a_dev"
MODELS = {
    "claude-opus-4.6-thinking": ("anthropic/claude-opus-4-6", "high"),
    "gemini-3-flash-preview": ("gemini/gemini-3-flash-preview", None),
    "gemini-3.1-pro-preview": ("gemini/gemini-3.1-pro-preview", None),
    "gpt-5-mini": ("openai/gpt-5-mini", None),
    "gpt-5.2-high": ("openai/gpt-5.2", "high"),
}
"""The data's name → the catalog's, and the effort that was asked for."""
COLD = 50
"""The first requests of a target."""
BYTES_PER_TOKEN, SPREAD = 4.2, 0.5
TOKENS_A_PIECE = 4
"""Of a stream that shows its thoughts."""


class Row(Struct, frozen=True):
    """One answer of one model."""

    prompt: str
    input: int
    output: int
    thinking: int


class Held(Struct, frozen=True):
    """One request of the replay, in nano-USD. `cut`: its cap was lower than its answer. `late`: what the provider's
    own count, at the end of a stream, had to add to the hold: the only moment at which a budget could be overrun."""

    held: int
    spent: int
    extensions: int
    cut: bool
    late: int

    @property
    def ratio(self) -> float:
        return self.held / self.spent


class Figures(Struct, frozen=True):
    """Over-reservation is Σ held ÷ Σ spent."""

    cold: float
    warm: float
    median_ratio: float
    mean_ratio: float
    extensions: float
    cut_share: float
    late_share: float
    worst_late: float
    """In shares of the hold."""
    overshoots: int
    """Requests that cost more than was held in the end."""


class Report(Struct, frozen=True):
    metered: dict[str, Figures]
    hidden: dict[str, Figures]
    metered_warm_mean: float
    metered_cold_mean: float


def folder() -> Path | None:
    """Where the data is, if it is."""
    place = Path(os.environ.get("LOWPASS_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return place if (place / f"{DATA}.rows.parquet").exists() else None


def rows(place: Path, half: int) -> dict[str, list[Row]]:
    """Answers by model, to the prompts of one half (0 or 1)."""
    parquet = importlib.import_module("pyarrow.parquet")
    texts = parquet.read_table(place / f"{DATA}.prompts.parquet", columns=["prompt_id", "prompt"]).to_pylist()
    prompts = {row["prompt_id"]: row["prompt"] for number, row in enumerate(texts) if number % 2 == half}
    found: dict[str, list[Row]] = {name: [] for name in MODELS}
    for row in parquet.read_table(place / f"{DATA}.rows.parquet").to_pylist():
        # A few answers came without any usage.
        if row["prompt_id"] in prompts and row["output_tokens"]:
            thinking = int(row["reasoning_tokens"] or 0)
            answer = Row(prompts[row["prompt_id"]], int(row["input_tokens"]), int(row["output_tokens"]), thinking)
            found[row["model"]].append(answer)
    return found


def target(name: str, streamed: bool) -> Target:
    catalog = shipped()
    card, effort = MODELS[name]
    model, provider = catalog.models[card]
    shown = structs.replace(model, thinking=structs.replace(model.thinking, streamed=streamed))
    # As where closing a stream stops its bill, whoever runs the model: only such streams are metered.
    stops = structs.replace(catalog.providers[provider], abandoned=AbandonedAnswer.CANCEL)
    return Target(id=name, model=shown, provider=stops, base_url="", effort=effort)


def replay(place: Target, answers: Iterable[Row], draw: random.Random) -> list[Held]:
    """One request after another."""
    learned = TargetStats()
    return [_one(place, answer, learned, draw.gauss(BYTES_PER_TOKEN, SPREAD)) for answer in answers]


def figures(runs: Sequence[Sequence[Held]]) -> Figures:
    cold = [one for run in runs for one in run[:COLD]]
    warm = [one for run in runs for one in run[COLD:]]
    both = (*cold, *warm)
    return Figures(
        cold=_over(cold),
        warm=_over(warm),
        median_ratio=median(one.ratio for one in warm),
        mean_ratio=mean(one.ratio for one in warm),
        extensions=mean(one.extensions for one in warm),
        cut_share=mean(one.cut for one in warm),
        late_share=mean(one.late > 0 for one in both),
        worst_late=max(one.late / (one.held - one.late) for one in both),
        overshoots=sum(one.spent > one.held for one in both),
    )


def report(answers: dict[str, list[Row]], shuffles: int) -> Report:
    both = [
        {name: figures(list(_runs(target(name, streamed), answers[name], shuffles))) for name in answers}
        for streamed in (True, False)
    ]
    warm, cold = (mean(getattr(one, part) for one in both[0].values()) for part in ("warm", "cold"))
    return Report(both[0], both[1], warm, cold)


def _runs(place: Target, answers: list[Row], shuffles: int) -> Iterable[list[Held]]:
    for seed in range(shuffles):
        draw = random.Random(seed)  # noqa: S311 - an order, not a secret
        yield replay(place, draw.sample(answers, len(answers)), draw)


def _one(place: Target, answer: Row, learned: TargetStats, density: float) -> Held:
    request = _request(answer.prompt)
    known = read_difficulty(request)
    forecaster = Forecaster((place,), learned, PassRateModel((place,)))
    step = Candidate(place, forecaster.estimates((place,), ForecastInput(request, known))[0])
    asked = fit(step, request, step.estimate.tight, learned)
    assert asked is not None, "what is held for a request is enough for it"
    held, extensions, cut = step.estimate.tight.usd, 0, False
    output = answer.output
    grows = asked.metered and not step.estimate.blind
    if grows:
        ahead = learned.ahead(place.id) or 0
        seen = learned.most_tokens(place.id, TextBytes(words=int(output * density)))
        held, extensions = _grown(step, request, held, seen, ahead)
    elif asked.max_output is not None and asked.max_output < output:
        output, cut = asked.max_output, True
    thinking = min(answer.thinking, output)
    usage = Usage(input_uncached=answer.input, output_visible=output - thinking, output_reasoning=thinking)
    spent = charge(place.model.price, usage).nano
    late = max(0, worst_cost(step, request, output) - held) if grows else 0
    if spent > held + late:
        learned.overrun(place.id)
    learned.observe(_seen(step, usage, cut, int(output * density)))
    return Held(held + late, spent, extensions + (late > 0), cut, late)


def _grown(step: Candidate, request: Request, held: int, seen: float, ahead: int) -> tuple[int, int]:
    """What is held in the end, and how often more was: as `router.dispatch.meter` does it. `seen`: tokens, as they seem
    by their bytes; `ahead`: those that may be on their way."""
    extensions = 0
    while (paid := affordable_output(step, request, held)) < seen + ahead and paid < step.estimate.max_output:
        held = max(held + 1, worst_cost(step, request, int((paid - ahead) * (1 + EXTEND)) + STEP + ahead))
        extensions += 1
    return held, extensions


def _seen(step: Candidate, usage: Usage, cut: bool, output_bytes: int) -> AttemptSample:
    estimated = step.estimate
    return AttemptSample(
        target=step.target.id,
        effort=estimated.effort,
        largest=TOKENS_A_PIECE * output_bytes / usage.totals.output if estimated.metered else 0,
        task=estimated.task,
        script=estimated.script,
        read=estimated.read,
        output=usage.totals.output,
        thinking=usage.output_reasoning,
        input=usage.totals.input,
        expected_input=estimated.input_rough,
        text=TextBytes(words=output_bytes),
        cut=cut,
    )


def _request(prompt: str) -> Request:
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}]}
    return parse(Endpoint.CHAT, "replay", msgspec.json.encode(body), [])


def _over(some: Sequence[Held]) -> float:
    return sum(one.held for one in some) / sum(one.spent for one in some)


def _table(found: Report) -> str:
    names = "model | thoughts | first 50 | warm | median | mean | extensions | cut | late (worst) | overshoots"
    lines = [f"| {names} |", "|---" * 10 + "|"]
    for shown, part in (("metered", found.metered), ("hidden", found.hidden)):
        lines += [f"| {name} | {shown} | {_line(one)} |" for name, one in part.items()]
    mean_of_all = f"{found.metered_cold_mean:.2f} cold, {found.metered_warm_mean:.2f} warm"
    return "\n".join([*lines, "", f"metered, mean of all models: {mean_of_all}"])


def _line(one: Figures) -> str:
    ratios = " | ".join(f"{ratio:.2f}" for ratio in (one.cold, one.warm, one.median_ratio, one.mean_ratio))
    late = f"{one.late_share:.2%} ({one.worst_late:.0%})"
    return f"{ratios} | {one.extensions:.2f} | {one.cut_share:.2%} | {late} | {one.overshoots}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--shuffles", type=int, default=5)
    parser.add_argument("--half", type=int, default=1, choices=(0, 1), help="0: the half that constants are chosen on")
    asked = parser.parse_args()
    place = folder()
    if place is None:
        print(f"skipped: no {DATA}.rows.parquet; set LOWPASS_DATA to the folder that has it")
        return
    if importlib.util.find_spec("pyarrow") is None:
        print("skipped: the data is in parquet files; install pyarrow to read them")
        return
    found = report(rows(place, asked.half), asked.shuffles)
    print(msgspec.json.encode(found).decode() if asked.json else _table(found))


if __name__ == "__main__":
    main()
