"""What the brain costs, CPU and memory, for 20 targets: `python -m bench.routing.speed`."""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from time import process_time_ns
from typing import Any

import msgspec

from bench.cpu import model
from bench.sensitivity import harmless
from bench.sensitivity.sight import CALLER, request, said
from bench.sensitivity.split import Split, chance
from bench.sensitivity.texts import blocks
from router.choose import CompiledPolicy, choose, index
from router.classify.difficulty import read_difficulty
from router.config.load import load_policy
from router.decide.health import Health
from router.estimate.forecast import Forecaster
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.screen import Screened
from router.types.request import Request
from router.types.target import Secret

TARGETS = 20
ROUNDS = 7
CHARACTERS = 4
"""Of a token, in English prose."""
SIZES = ((40, 40, None), (500, 40, 0.25), (100_000, 3, 3.0))
"""Tokens of a prompt, how many different prompts a round, and the goal in ms of CPU."""
MEMORY_MB = 150.0
DETECTORS = [{"kind": "identifiers", "class": "pii"}, {"kind": "secrets", "class": "secret"}]

Write = Callable[[Random, int], str]
"""So many characters."""


class Time(msgspec.Struct, frozen=True):
    """CPU of one request in ms: the mean of the best round. Every request has a text of its own. The brain is
    `read_difficulty`: difficulty, task and familiarity; and `choose`: every target's forecast, and the decision."""

    text: str
    tokens: int
    read_ms: float
    choose_ms: float
    screen_ms: float
    """All that is done with a text: read, and looked at for identifiers and secrets."""
    goal_ms: float | None

    @property
    def total_ms(self) -> float:
        return self.read_ms + self.choose_ms


class Report(msgspec.Struct, frozen=True):
    """Resident memory of this process, MB: with the gateway's modules, and after all requests."""

    processor: str
    targets: int
    times: tuple[Time, ...]
    before_mb: float
    after_mb: float
    goal_mb: float

    @property
    def sound(self) -> bool:
        slow = any(time.goal_ms is not None and time.total_ms > time.goal_ms for time in self.times)
        return not slow and self.after_mb <= self.goal_mb


def measure(rounds: int = ROUNDS) -> Report:
    before = resident_mb()
    times = tuple(_times(rounds))
    return Report(model(), TARGETS, times, before, resident_mb(), MEMORY_MB)


def _times(rounds: int) -> Iterator[Time]:
    rules, forecaster = _gateway()
    for text, write in (("prose", _prose), ("words nobody has seen", _unseen)):
        for tokens, count, goal in SIZES:
            figures = _time(rules, forecaster, write, tokens, count, rounds)
            yield Time(text, tokens, *figures, goal if write is _prose else None)


def _time(
    rules: CompiledPolicy, forecaster: Forecaster, write: Write, tokens: int, count: int, rounds: int
) -> tuple[float, float, float]:
    draw, health = chance(Split.TEST, f"routing {tokens}"), Health(time.monotonic)

    def fresh() -> list[Request]:
        return [request(said(write(draw, tokens * CHARACTERS))) for _ in range(count)]

    def look(request: Request) -> Screened:
        return rules.screen.alone(request, CALLER)

    def decide(request: Request) -> None:
        choose(rules, request, CALLER, classified[id(request)], health, forecaster)

    requests = fresh()
    classified = {id(request): look(request) for request in requests}
    # A choice reads the request first; the second time its words are known.
    again = min(_cpu_ms(read_difficulty, requests) for _ in range(rounds))
    return (
        min(_cpu_ms(read_difficulty, fresh()) for _ in range(rounds)),
        min(_cpu_ms(decide, requests) for _ in range(rounds)) - again,
        min(_cpu_ms(look, fresh()) for _ in range(rounds)),
    )


def _cpu_ms(run: Callable[[Request], object], requests: Sequence[Request]) -> float:
    began = process_time_ns()
    for each in requests:
        run(each)
    return (process_time_ns() - began) / len(requests) / 1e6


def _prose(draw: Random, characters: int) -> str:
    text = ""
    while len(text) < characters:
        text += harmless.fill_block(draw.choice(_pieces()), draw) + "\n"
    return text[:characters]


@cache
def _pieces() -> list[str]:
    """English and German, Markdown and Python."""
    texts = blocks("harmless")
    return [block for name in ("english", "markdown", "german", "python") for block in texts[name]]


def _unseen(draw: Random, characters: int) -> str:
    letters = draw.choices("abcdefghijklmnopqrstuvwxyz       ", k=characters)
    return "".join(letters)


def _gateway() -> tuple[CompiledPolicy, Forecaster]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(msgspec.json.encode(_policy()).decode())
        file.flush()
        path = Path(file.name)
        config = load_policy(path)
    targets = tuple(config.targets.values())
    return index(config, Secret("bench")), Forecaster(targets, TargetStats(), PassRateModel(targets))


def _policy() -> dict[str, Any]:
    """JSON is YAML."""
    targets = {f"target-{number}": _target(number) for number in range(TARGETS)}
    classes: dict[str, Any] = {name: {} for name in ("internal", "pii", "secret")}
    route = {"strategy": {"kind": "cost_of_pass", "targets": list(targets)}, "failure_cost_usd": 1}
    sensitivity = {"default": "internal", "classes": classes, "detectors": DETECTORS}
    return {"version": 1, "targets": targets, "routes": {"auto": route}, "sensitivity": sensitivity}


def _target(number: int) -> dict[str, Any]:
    price = {"input": round(0.1 * (number + 1), 1), "output": round(0.5 * (number + 1), 1)}
    named = {"name": f"model-{number}", "provider": "vllm", "capabilities": ["chat"], "price": price}
    return {"model": named | {"context": 1_000_000, "max_output": 32_768}, "base_url": "http://127.0.0.1:9/v1"}


def resident_mb() -> float:
    """Of this process, as the kernel counts it."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def render(report: Report) -> str:
    head = ("prompt", "tokens", "read, ms", "estimate and decide, ms", "together, ms", "read and detect, ms")
    lines = [head, ("---", *["--:"] * (len(head) - 1)), *map(_line, report.times)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    memory = f"{report.before_mb:.0f} MB before, {report.after_mb:.0f} MB after; goal ≤ {report.goal_mb:.0f}."
    head_line = f"One core of an {report.processor}, {report.targets} targets."
    return f"{head_line}\n\n{table}\n\nResident memory: {memory}"


def _line(time: Time) -> tuple[str, ...]:
    goal = "" if time.goal_ms is None else f" ({'✗ ' if time.total_ms > time.goal_ms else ''}≤ {time.goal_ms:g})"
    milliseconds = (f"{time.total_ms:.3f}{goal}", f"{time.screen_ms:.3f}")
    return (time.text, f"{time.tokens:,}", f"{time.read_ms:.3f}", f"{time.choose_ms:.3f}", *milliseconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--check", action="store_true", help="exit status 1 if a goal is missed")
    options = parser.parse_args()
    report = measure(options.rounds)
    print(msgspec.json.encode(report).decode() if options.json else render(report))
    raise SystemExit(options.check and not report.sound)


if __name__ == "__main__":
    main()
