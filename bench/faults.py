"""What a gateway makes of upstreams that misbehave: `python -m bench.faults [--json] [--cases 10000] [--only openai]`.

For each wire, a gateway answers that many requests, 16 at once. Their first target answers as
`bench.strange` does, the second well. Then a target that fails at random is asked alone, and odd
framing is read by our HTTP client and by h11. Linux only: memory and descriptors are read from /proc.
"""

import argparse
import asyncio
import http.client
import os
import random
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct

from bench.budgets.site import Gateway as OwnGateway
from bench.framing import differences
from bench.strange import CLIENTS_FAULT, WIRES, Strange, case, policy
from router.dispatch.http import IDLE_S
from router.testing import Client, Gateway, Reply
from router.testing.upstream import BEHAVIOURS, Ask, Behaviour, Upstream

AT_ONCE, BATCH, ODD_TARGETS = 16, 500, 64
WARM_UP = 60_000
"""Cases before memory and descriptors are looked at: then the windows of all targets and all caches are full."""
DEADLINE_MS, LATE_S = 2_000, 1.0
"""What each request allows, and how much longer an answer may take before it counts as late."""
ALONE = {"every-second": 0.5, "random-10": 0.1, "random-50": 0.5, "random-90": 0.9}
"""How a single target fails → with which share of its answers."""
ALONE_S, PER_SECOND = 30, 20
ROWS = """SELECT
    (SELECT count(DISTINCT request_id) FROM attempts WHERE target LIKE 'odd-%') AS strange,
    (SELECT count(*) FROM requests WHERE status = 200 AND error IS NOT NULL) AS broken,
    (SELECT count(*) FROM requests WHERE state = 'held') AS held"""


class Wire(Struct, frozen=True):
    """The goals: 0 of `misdirected`, `late`, `held` and `crashed`; 2 MB; as many descriptors as before; 100 %."""

    name: str
    cases: int
    strange: int
    """Cases whose first target was asked: for some it rests, at its own wish."""
    misdirected: int
    """Answers that belong to another request."""
    late: int
    """Requests past their deadline and `LATE_S`."""
    held: int
    """Rows still held when all requests are answered."""
    crashed: int
    """Answers with status 500."""
    unreadable: int
    """Answers with status 200 that are not UTF-8, or not JSON."""
    broken: int
    """Streams that begin with status 200 and end in an error."""
    grown_mb: float
    """Resident memory of the gateway's process."""
    descriptors: tuple[int, int]
    """Before the cases and after, idle connections closed."""
    availability: float
    """Share that was answered with 200, of those that were not refused for the client's fault."""
    slowest_s: float
    seconds: float


class Alone(Struct, frozen=True):
    """A target without another beside it, asked `PER_SECOND` times a second."""

    fails: str
    requests: int
    goal: float
    availability: float


class Framing(Struct, frozen=True):
    cases: int
    harmful: int
    """Cases where h11 refuses, or reads another answer, or closes the connection, and we have no good reason."""
    harmless: dict[str, int]


class Report(Struct, frozen=True):
    date: str
    wires: tuple[Wire, ...]
    alone: tuple[Alone, ...]
    framing: Framing


class Answer(Struct, frozen=True):
    status: int
    complaint: str
    seconds: float


class Process(Client):
    """A gateway in a process of its own."""

    def __init__(self, gateway: OwnGateway, policy: Any) -> None:
        super().__init__(gateway.home, policy)
        self._gateway = gateway
        self.url = f"http://127.0.0.1:{gateway.port}"

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        with closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def at_rest(self) -> tuple[float, int]:
        """Its megabytes and descriptors, once idle connections are closed."""
        time.sleep(IDLE_S + 1)
        place = Path(f"/proc/{self._gateway.process.pid}")
        pages = int((place / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6, len(os.listdir(place / "fd"))


@contextmanager
def serving(home: Path, policy: Any) -> Iterator[Process]:
    gateway = OwnGateway(home, home / "policy.yaml", 1, {}, home / "gateway.log")
    client = Process(gateway, policy)
    gateway.launch()
    try:
        gateway.wait()
        yield client
    finally:
        gateway.stop()


class Flaky(Upstream):
    """A model's name is the way in which it fails, of `ALONE`."""

    def __init__(self) -> None:
        super().__init__()
        self._draw, self._calls = random.Random(1), Counter[str]()  # noqa: S311 - cases

    def behaviour(self, ask: Ask) -> Behaviour:
        self._calls[ask.model] += 1
        alternates = ask.model == "every-second"
        fails = self._calls[ask.model] % 2 == 1 if alternates else self._draw.random() < ALONE[ask.model]
        return BEHAVIOURS["error-500" if fails else "normal"]


def wire(name: str, cases: int) -> Wire:
    counts, slowest_s = Counter[str | int](), 0.0
    with (
        TemporaryDirectory() as folder,
        Strange() as upstream,
        serving(Path(folder), policy(upstream.url, [name], ODD_TARGETS)) as gateway,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        deque(answers(pool, gateway, name, range(cases, cases + WARM_UP)), maxlen=0)
        (earlier,), (rss, descriptors), started = gateway.rows(ROWS), gateway.at_rest(), time.monotonic()
        for answer in answers(pool, gateway, name, range(cases)):
            counts.update([answer.status, answer.complaint])
            counts["late"] += answer.seconds > DEADLINE_MS / 1_000 + LATE_S
            slowest_s = max(slowest_s, answer.seconds)
        seconds = time.monotonic() - started
        after, (rows,) = gateway.at_rest(), gateway.rows(ROWS)
    return Wire(
        name=name,
        cases=cases,
        strange=rows["strange"] - earlier["strange"],
        misdirected=counts["another request's answer"],
        late=counts["late"],
        held=rows["held"],
        crashed=counts["500"],
        unreadable=counts["no JSON"],
        broken=rows["broken"] - earlier["broken"],
        grown_mb=after[0] - rss,
        descriptors=(descriptors, after[1]),
        availability=counts[200] / (cases - sum(counts[status] for status in CLIENTS_FAULT)),
        slowest_s=slowest_s,
        seconds=seconds,
    )


def answers(pool: ThreadPoolExecutor, gateway: Client, name: str, numbers: range) -> Iterator[Answer]:
    """In batches: ten thousand answers at once are much to keep."""

    def ask(number: int) -> Answer:
        asked, started = case(number, [name], ODD_TARGETS), time.monotonic()
        reply = gateway.post(asked.path, asked.body, x_lowpass_deadline_ms=str(DEADLINE_MS))
        return Answer(reply.status, asked.complaint(reply), time.monotonic() - started)

    for first in range(0, len(numbers), BATCH):
        yield from pool.map(ask, numbers[first : first + BATCH])


def alone(seconds: float) -> tuple[Alone, ...]:
    """All at the same time, each a target of its own."""
    started, numbers = 0.0, range(int(seconds * PER_SECOND))

    def answered(turn: tuple[int, str]) -> tuple[str, bool]:
        time.sleep(max(0.0, started + turn[0] / PER_SECOND - time.monotonic()))
        return turn[1], gateway.chat(turn[1]).status == 200

    with (
        TemporaryDirectory() as folder,
        Flaky() as upstream,
        Gateway(Path(folder), pinned(upstream.base_url("openai"))) as gateway,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        started = time.monotonic()
        counts = Counter(pool.map(answered, [(number, name) for number in numbers for name in ALONE]))
    shares = {name: counts[name, True] / len(numbers) for name in ALONE}
    return tuple(Alone(name, len(numbers), 1 - fails, shares[name]) for name, fails in ALONE.items())


def pinned(base_url: str) -> dict[str, Any]:
    size = {"context": 8_000, "max_output": 500, "capabilities": ["chat"], "price": {"input": 1, "output": 2}}
    row = {"base_url": base_url, "api_key": "sk-upstream", "retries": 0}
    targets = {name: {"model": {"name": name, "provider": "openai", **size}, **row} for name in ALONE}
    routes = {f"alone-{name}": {"strategy": {"kind": "pinned", "target": name}} for name in ALONE}
    return {"version": 1, "targets": targets, "routes": routes}


def framing(cases: int) -> Framing:
    rows = asyncio.run(differences(range(cases)))
    return Framing(
        cases, sum(not row.harmless for row in rows), dict(Counter(row.what for row in rows if row.harmless))
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--cases", type=int, default=10_000, help="for each wire, and for h11")
    parser.add_argument("--only", default=",".join(WIRES), help="wires, by commas")
    options = parser.parse_args()
    report = Report(
        time.strftime("%Y-%m-%d"),
        tuple(wire(name, options.cases) for name in options.only.split(",") if name),
        alone(ALONE_S),
        framing(options.cases),
    )
    print(msgspec.json.encode(report).decode() if options.json else render(report))


def render(report: Report) -> str:
    title = ["wire", "cases", "strange", "misdirected", "late", "held", "500", "unreadable", "broken", "MB", "fds"]
    rows = [
        [
            *(row.name, row.cases, row.strange, row.misdirected, row.late, row.held, row.crashed, row.unreadable),
            *(row.broken, f"{row.grown_mb:+.1f}", "{} → {}".format(*row.descriptors), f"{row.availability:.2%}"),
            f"{row.slowest_s:.1f}",
        ]
        for row in report.wires
    ]
    flaky = [(row.fails, row.requests, f"{row.goal:.0%}", f"{row.availability:.1%}") for row in report.alone]
    same = report.framing
    compared = [(same.cases, same.harmful, ", ".join(f"{what}: {count}" for what, count in same.harmless.items()))]
    return "\n\n".join(
        [
            report.date,
            _table([*title, "availability", "slowest s"], rows),
            _table(["a target alone fails", "requests", "goal", "availability"], flaky),
            _table(["cases with h11", "harmful differences", "harmless ones"], compared),
        ]
    )


def _table(title: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [title, ["---"] * len(title), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


if __name__ == "__main__":
    main()
