"""Cost, energy and overhead of an engine where it really runs: `python -m bench.gpu ENGINE`, on a machine with GPUs.

The engine is started as `lowpass local up` would: LOWPASS_VLLM_PYTHON names an environment that has vLLM.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.gpu.levels import Level, Shape, level
from bench.load import LoadError
from bench.local.overhead import WHOLE, Overhead, compare
from bench.local.sites import engine, on_core, ours
from bench.local.streams import Door
from local_serving import EngineError
from local_serving.meter import gpu_power
from local_serving.recipe import names, served
from local_serving.spec import EngineSpec, External, Vllm, gpus, read
from local_serving.watch import format_of


class Report(Struct, frozen=True, kw_only=True):
    engine: str
    gpus: int
    usd_hour: float
    levels: tuple[Level, ...]
    overhead: Overhead | None = None


def measure(spec: EngineSpec, streams: list[int], shape: Shape, overhead: bool) -> Report:
    """Raises EngineError or LoadError."""
    words = format_of(spec)
    if isinstance(spec, External) or words is None:
        raise EngineError(f"{spec.name} is not run by lowpass: name the spec by which it is started")
    count, hourly = gpus(spec), served(spec, ["http://127.0.0.1:9/v1"]).hourly
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name, engine(spec, Path(name)) as found:
        door = Door(found.port, names(spec)[0] if isinstance(spec, Vllm) else spec.model)
        used = tuple(spec.gpus or range(count)) if isinstance(spec, Vllm) else ()
        power, between = gpu_power(used), None
        asyncio.run(level(door, words, 1, Shape(8, 8, 1.0), hourly, power))  # what is compiled at first use
        levels = tuple(asyncio.run(level(door, words, each, shape, hourly, power)) for each in streams)
        if overhead:
            with on_core(ours()):
                between = asyncio.run(compare(spec.name, door, Path(name) / "gateway", WHOLE))
    return Report(engine=spec.name, gpus=count, usd_hour=hourly / 1e9, levels=levels, overhead=between)


def render(report: Report) -> str:
    lines = [f"{report.engine}, {report.gpus} GPUs, {report.usd_hour:g} USD an hour", ""]
    lines += ["| streams | read, tokens/s | written, tokens/s | first token, ms | USD/M in | USD/M out | J/token |"]
    lines += ["|--:|--:|--:|--:|--:|--:|--:|", *map(_row, report.levels)]
    if report.overhead:
        lines += ["", *(f"{goal.what}: {goal.got}, goal {goal.goal}" for goal in report.overhead.goals)]
    return "\n".join(lines)


def _row(one: Level) -> str:
    cells = (one.streams, f"{one.prompt_per_s:,.0f}", f"{one.output_per_s:,.0f}", f"{one.first_ms:,.0f}")
    known = (f"{value:.3f}" if value is not None else "–" for value in (one.usd_input, one.usd_output))
    energy = f"{one.joule_per_token:.2f}" if one.joule_per_token is not None else "–"
    return f"| {' | '.join(map(str, (*cells, *known, energy)))} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("engine", help="a shipped engine, or the path of a spec")
    parser.add_argument("--streams", default="1,8,32,64", help="at a time; several levels, one after the other")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each level")
    parser.add_argument("--words", type=int, default=400, help="of a prompt; no two are alike")
    parser.add_argument("--tokens", type=int, default=200, help="of an answer")
    parser.add_argument("--no-overhead", action="store_true", help="leave out the gateway in front of it")
    parser.add_argument("--json", action="store_true", help="one document instead of a table")
    return parser.parse_args()


def main() -> None:
    options = _options()
    shape = Shape(options.words, options.tokens, options.seconds)
    try:
        streams = [int(each) for each in options.streams.split(",")]
        report = measure(read(options.engine), streams, shape, not options.no_overhead)
    except (EngineError, LoadError, ValueError) as problem:
        sys.exit(f"bench.gpu: {problem}")
    print(msgspec.json.encode(report).decode() if options.json else render(report))


if __name__ == "__main__":
    main()
