"""What one request costs the gateway, beside nginx and the LiteLLM proxy: `python -m bench.gateway`, or `make bench`.

All gateways are up at once and take turns, so a slow minute of the machine hits all of them alike.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.children import Cores, Generator, cores, generator, upstream
from bench.cpu import model, tree_seconds
from bench.load import Job, LoadError
from bench.peers import PEERS, Absent, Gateway, Site, install_litellm, settled_requests
from bench.table import Machine, Report, Row, Sample, Scenario, Section, render

SCENARIOS = (
    Scenario("Chat, 1 connection", connections=1, stream=False, warm_up=50),
    Scenario("Chat, 32 connections", connections=32, stream=False, warm_up=256),
    Scenario("Stream of 40 chunks 2 ms apart, 32 connections", connections=32, stream=True, warm_up=64),
)
_LIMIT_S = 60.0
_SETTLE_S = 0.1
"""After the last answer: what a gateway puts off, its accounting above all, belongs to the requests."""


class Bench:
    """Gateways that are up, and those that could not be measured, with the reason."""

    def __init__(self, load: Generator, seconds: float) -> None:
        self.load = load
        self.seconds = seconds
        self.answers: Counter[str] = Counter()
        self.up: dict[str, Gateway] = {}
        self.absent: dict[str, str] = {}

    def start(self, name: str, site: Site, stack: ExitStack) -> None:
        """Bring a gateway up until the stack closes, or note why it can't be."""
        site.home.mkdir()
        try:
            self.up[name] = stack.enter_context(PEERS[name](site))
            self.answers[name] = 1  # the one that showed that it is ready
        except Absent as reason:
            self.absent[name] = str(reason)
        except LoadError as problem:
            raise LoadError(f"{name}: {problem}") from problem

    def section(self, scenario: Scenario, rounds: int) -> Section:
        """Warm every gateway up, then measure them in turns: A B C A B C."""
        jobs = {name: self._job(name, gateway, scenario) for name, gateway in self.up.items()}
        samples: dict[str, list[Sample]] = {name: [] for name in jobs}
        for number in range(rounds):
            for name, job in jobs.items():
                _say(f"{scenario.name}: round {number + 1} of {rounds}, {name}, {job.requests} requests")
                samples[name].append(self._measure(name, job))
        return Section(
            scenario, tuple(self._row(name, tuple(samples.get(name, ()))) for name in PEERS if self._known(name))
        )

    def audit(self) -> None:
        """A gateway measured with its ledger on must have written it. Raises LoadError if a row is missing."""
        for name, gateway in self.up.items():
            if gateway.ledger and (rows := settled_requests(gateway.ledger)) != self.answers[name]:
                raise LoadError(
                    f"{name}: {self.answers[name]} answers, but {rows} settled requests in {gateway.ledger}"
                )

    def _known(self, name: str) -> bool:
        return name in self.up or name in self.absent

    def _row(self, name: str, samples: tuple[Sample, ...]) -> Row:
        version = self.up[name].version if name in self.up else ""
        return Row(name, version, samples, self.absent.get(name))

    def _job(self, name: str, gateway: Gateway, scenario: Scenario) -> Job:
        """The warm-up, and from its speed the number of requests that fills the time of one measurement."""
        job = Job(
            gateway.port,
            scenario.connections,
            scenario.warm_up,
            stream=scenario.stream,
            model=gateway.model,
            key=gateway.key,
            limit_s=_LIMIT_S,
        )
        _say(f"{scenario.name}: warm-up, {name}")
        warm = self._measure(name, job).load
        fits = int(warm.requests / warm.seconds * self.seconds)
        return msgspec.structs.replace(job, requests=max(fits, 2 * scenario.connections, 20))

    def _measure(self, name: str, job: Job) -> Sample:
        pid = self.up[name].pid
        before = tree_seconds(pid) if pid else 0.0
        try:
            result = self.load.run(job)
        except LoadError as problem:
            raise LoadError(f"{name}: {problem}") from problem
        self.answers[name] += job.requests
        time.sleep(_SETTLE_S)
        spent_ms = (tree_seconds(pid) - before) * 1e3 / job.requests if pid else None
        return Sample(spent_ms, result)


def measure(names: list[str], rounds: int, seconds: float) -> Report:
    """Start the named gateways and measure them in every scenario. Raises LoadError if one gives a wrong answer."""
    place = cores()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lowpass-bench-")))
        port = stack.enter_context(upstream(place.load))
        bench = Bench(stack.enter_context(generator(place.load)), seconds)
        for name in names:
            _say(f"starting {name}")
            bench.start(name, Site(port, home / name, place), stack)
        sections = tuple(bench.section(scenario, rounds) for scenario in SCENARIOS)
        bench.audit()
    return Report(f"{datetime.now(UTC):%Y-%m-%d}", machine(place), rounds, sections)


def machine(place: Cores) -> Machine:
    return Machine(model(), len(os.sched_getaffinity(0)), place.apart, platform.python_version())


def _say(line: str) -> None:
    """SessionState, on a terminal only: one line, overwritten."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample as JSON")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each gateway in each scenario")
    parser.add_argument("--seconds", type=float, default=2.0, help="about how long one measurement lasts")
    parser.add_argument(
        "--only", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME", help=f"of {', '.join(PEERS)}"
    )
    parser.add_argument(
        "--install-litellm", action="store_true", help="install the LiteLLM proxy beside the project, and end"
    )
    return parser.parse_args()


def main() -> None:
    options = _options()
    if options.install_litellm:
        install_litellm()
        return
    try:
        report = measure(options.only, options.rounds, options.seconds)
    except LoadError as problem:
        sys.exit(f"bench: {problem}")
    _say("")
    print(render(report), end="")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))


if __name__ == "__main__":
    main()
