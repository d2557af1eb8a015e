"""What one request costs in Python: `python -m bench.calls [--json] [--top 40 --kind auto]`.

Runs the real gateway in this process with keys, a budget, two detectors and the ledger, before the scripted upstream,
and counts in the thread of its event loop. Calls, functions, files, coroutines, decodes and encodes are exact and the
same on every machine; microseconds are CPU time of that thread, shared out among the folders by a profile.
"""

import argparse
import concurrent.futures
import cProfile
import inspect
import json
import pstats
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from unittest.mock import patch

import httpx
from msgspec import Struct

from router.dispatch import http
from router.testing import Gateway, lowpass
from router.testing.upstream import Upstream

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
OURS = tuple(str(ROOT / name) for name in ("router", "adapters", "local_serving"))
WARM_UP, COUNTED, TIMED = 30, 60, 300
"""Requests of each kind: what the first ones load is not counted."""
PROMPT = "Our warehouse moved last week. Please explain in two sentences how we tell customers that parcels come late. "
WORDS = 5
"""How often a prompt has that text: about 100 tokens."""
TICK_S = 1.0
"""Between two ticks of the gateway, as served: what they do is no part of a request …"""
SWEEP_S = 3_600.0
"""… nor is the timer of upstreams' timeouts, which a busy machine would have run within each of them."""
_PRICES = (0.05, 0.1, 0.4, 1.0, 3.0)


class Counts(Struct, frozen=True):
    """Of one request: the least of `COUNTED`, beside which nothing else ran. Resuming a coroutine counts as a call."""

    calls: int
    functions: int
    files: int
    coroutines: int
    decodes: int
    encodes: int
    """Of JSON, all of them."""


class Hook:
    """`sys.setprofile` calls it. Between two requests `take` empties it."""

    def __init__(self) -> None:
        self.functions: Counter[Any] = Counter()
        self.json: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if frame.f_code.co_filename.startswith(OURS):
                self.functions[frame.f_code] += 1
        elif event == "c_call" and (name := argument.__name__.removeprefix("json_")) in ("encode", "decode"):
            owner = getattr(argument, "__self__", None)
            if "msgspec" in str(getattr(argument, "__module__", "") or type(owner).__module__):
                self.json[name] += 1

    def take(self) -> Counts:
        functions = {code: n for code, n in self.functions.items() if "/router/testing/" not in code.co_filename}
        counts = Counts(
            calls=sum(functions.values()),
            functions=len(functions),
            files=len({code.co_filename for code in functions}),
            coroutines=sum(bool(code.co_flags & inspect.CO_COROUTINE) for code in functions),
            decodes=self.json["decode"],
            encodes=self.json["encode"],
        )
        self.functions.clear()
        self.json.clear()
        return counts


def policy(upstream: str) -> dict[str, Any]:
    """Five targets of different prices, a budget and two detectors."""
    targets = {}
    for number, price in enumerate(_PRICES):
        model = {
            "name": "merged-frames",  # all events in one write: how many reads they take is chance otherwise
            "provider": "openai",
            "context": 100_000,
            "max_output": 1_000,
            "capabilities": ["chat"],
            "price": {"input": price, "output": 4 * price},
        }
        targets[f"t{number}"] = {"model": model, "base_url": f"{upstream}/openai/v1", "api_key": "sk-upstream"}
    names = list(targets)
    by_value = {"kind": "cost_of_pass", "targets": names}
    checked = {"kind": "cascade", "targets": names, "accepts_wrong": 0.0, "caution": 0}
    return {
        "version": 1,
        "targets": targets,
        "routes": {
            "pinned": {"strategy": {"kind": "pinned", "target": "t0"}},
            "auto": {"strategy": by_value, "failure_cost_usd": 0.01},
            "cascade": {"strategy": checked, "failure_cost_usd": 0.01, "verifiers": [{"kind": "truncated"}]},
        },
        "sensitivity": {
            "default": "public",
            "classes": {"public": {}, "pii": {}, "secret": {}},
            "detectors": [{"kind": "identifiers", "class": "pii"}, {"kind": "secrets", "class": "secret"}],
        },
        "budgets": [{"id": "everyone", "limit_usd": 1000, "window": "day"}],
    }


def kinds() -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and body of a request of each kind."""
    chat = {"messages": [{"role": "user", "content": PROMPT * WORDS}], "max_tokens": 64}
    return {
        "pinned": ("/v1/chat/completions", {"model": "pinned", **chat}),
        "auto": ("/v1/chat/completions", {"model": "auto", **chat}),
        "cascade": ("/v1/chat/completions", {"model": "cascade", **chat}),
        "stream": ("/v1/chat/completions", {"model": "pinned", "stream": True, **chat}),
        "responses": ("/v1/responses", {"model": "pinned", "input": PROMPT * WORDS, "max_output_tokens": 64}),
    }


@contextmanager
def gateway() -> Iterator[tuple[Gateway, dict[str, str]]]:
    """A started gateway before the scripted upstream, and the headers of its key."""
    with (
        patch.object(http, "SWEEP_S", SWEEP_S),
        tempfile.TemporaryDirectory(prefix="lowpass-calls-") as folder,
        Upstream() as upstream,
    ):
        home = Path(folder)
        key = json.loads(lowpass(home, "keys", "create", "bench", "--json").output)["key"]
        with Gateway(home, policy(upstream.url), tick_s=TICK_S) as served:
            yield served, {"authorization": f"Bearer {key}"}


class Client:
    """Sends one kind of request on one connection, each with an id of its own in its text."""

    def __init__(self, served: Gateway, headers: Mapping[str, str], kind: str) -> None:
        self._path, self._body = kinds()[kind]
        self._http = httpx.Client(base_url=served.url, headers=dict(headers), timeout=60)
        self._number = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def send(self) -> None:
        self._number += 1
        text = f"Ticket {self._number}. "
        body = dict(self._body)
        if "input" in body:
            body["input"] = text + body["input"]
        else:
            body["messages"] = [{"role": "user", "content": text + body["messages"][0]["content"]}]
        reply = self._http.post(self._path, json=body)
        assert reply.status_code == 200, reply.text

    def warm_up(self) -> None:
        for _ in range(WARM_UP):
            self.send()


def on_loop(served: Gateway, act: Callable[[], T]) -> T:
    """Calls `act` in the thread of the gateway's event loop."""
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    served.loop.call_soon_threadsafe(lambda: done.set_result(act()))
    return done.result(60)


def counted(served: Gateway, headers: Mapping[str, str], kind: str) -> Counts:
    hook, counts = Hook(), []
    with Client(served, headers, kind) as client:
        client.warm_up()
        on_loop(served, lambda: sys.setprofile(hook))
        try:
            on_loop(served, hook.take)
            for _ in range(COUNTED):
                client.send()
                counts.append(on_loop(served, hook.take))
        finally:
            on_loop(served, lambda: sys.setprofile(None))
    return Counts(**{name: min(getattr(each, name) for each in counts) for name in Counts.__struct_fields__})


def timed(served: Gateway, headers: Mapping[str, str], kind: str) -> float:
    """CPU microseconds of the event loop's thread for a request, one after the other."""
    with Client(served, headers, kind) as client:
        client.warm_up()
        before = on_loop(served, time.thread_time_ns)
        for _ in range(TIMED):
            client.send()
        return (on_loop(served, time.thread_time_ns) - before) / TIMED / 1000


def profiled(served: Gateway, headers: Mapping[str, str], kind: str) -> pstats.Stats:
    profiler = cProfile.Profile()
    with Client(served, headers, kind) as client:
        client.warm_up()
        on_loop(served, profiler.enable)
        for _ in range(TIMED):
            client.send()
        on_loop(served, profiler.disable)
    return pstats.Stats(profiler)


def by_folder(stats: pstats.Stats, micros: float) -> dict[str, float]:
    """`micros` shared out among the folders of the product by the profile's own time."""
    own: dict[str, float] = defaultdict(float)
    for (file, _, _), (_, _, seconds, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        parts = Path(file).relative_to(ROOT).parts if file.startswith(OURS) else ("everything else",)
        own["/".join(parts[:2]) if len(parts) > 1 else parts[0]] += seconds
    total = sum(own.values())
    return {name: micros * own[name] / total for name in sorted(own, key=lambda name: -own[name])}


def main() -> None:
    options = _options()
    rows = {}
    with gateway() as (served, headers):
        for kind in [options.kind] if options.kind else kinds():
            counts = counted(served, headers, kind)
            rows[kind] = {name: getattr(counts, name) for name in Counts.__struct_fields__}
            if options.counts:
                continue
            micros, stats = timed(served, headers, kind), profiled(served, headers, kind)
            rows[kind] |= {"microseconds": round(micros), "by_folder": by_folder(stats, micros)}
            if options.top:
                stats.sort_stats(options.sort).print_stats(options.top)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    names = [*Counts.__struct_fields__, *([] if options.counts else ["microseconds"])]
    print("".join(f"{name:>13}" for name in ("", *names)))
    for kind, row in rows.items():
        print("".join(f"{cell:>13}" for cell in (kind, *[row[name] for name in names])))
        shares = [
            f"{name.removeprefix('router/')} {us:.0f}" for name, us in row.get("by_folder", {}).items() if us >= 5
        ]
        if shares:
            print(f"{'':>13}  {', '.join(shares)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--counts", action="store_true", help="only what is exact: no time is measured")
    parser.add_argument("--kind", choices=tuple(kinds()), help="only this kind")
    parser.add_argument("--top", type=int, default=0, help="print so many functions of the profile")
    parser.add_argument("--sort", choices=("tottime", "cumtime", "ncalls"), default="tottime")
    return parser.parse_args()


if __name__ == "__main__":
    main()
