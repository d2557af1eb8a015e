"""Where the gateway's time goes: `python -m bench.profile --connections 32 --requests 5000`.

Runs `lowpass serve` in this process under cProfile, against the scripted upstream, and prints the functions that took
most time of their own. Profiling slows Python code several times over: read the shares, not the milliseconds.
"""

import argparse
import cProfile
import json
import os
import pstats
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import msgspec

from bench.children import Cores, Generator, cores, free_port, generator, until_answering, upstream
from bench.load import Job, LoadError
from bench.peers import lowpass_key, lowpass_policy

_WARM_UP = 256
_READY_S = 20.0


class Drive(Thread):
    """Sends the load from outside, switches the profiler on only for the measured part, and stops the server."""

    def __init__(self, load: Generator, job: Job) -> None:
        super().__init__(daemon=True)
        self.load = load
        self.job = job
        self.problem: str | None = None

    def run(self) -> None:
        try:
            self._drive()
        except LoadError as problem:
            self.problem = str(problem)
        os.kill(os.getpid(), signal.SIGINT)

    def _drive(self) -> None:
        until_answering(self.job, ended=lambda: False, limit_s=_READY_S)
        self.load.run(msgspec.structs.replace(self.job, requests=_WARM_UP))
        os.kill(os.getpid(), signal.SIGUSR1)
        self.load.run(self.job)
        os.kill(os.getpid(), signal.SIGUSR2)


def profile(options: argparse.Namespace) -> pstats.Stats:
    """Profile one load on the gateway. Raises LoadError if an answer is wrong."""
    place = cores()
    with _served(place) as (argv, job), generator(place.load) as load:
        profiler = cProfile.Profile(builtins=options.builtins)
        signal.signal(signal.SIGUSR1, lambda *_: profiler.enable())
        signal.signal(signal.SIGUSR2, lambda *_: profiler.disable())
        wanted = {"connections": options.connections, "requests": options.requests, "stream": options.stream}
        drive = Drive(load, msgspec.structs.replace(job, **wanted))
        drive.start()
        _serve(argv)
        drive.join()
    if drive.problem:
        raise LoadError(drive.problem)
    return pstats.Stats(profiler)


@contextmanager
def _served(place: Cores) -> Iterator[tuple[list[str], Job]]:
    """The arguments that serve the bench's policy from a fresh state folder, and a job that fits."""
    os.sched_setaffinity(0, place.gateway)
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as home, upstream(place.load) as upstream_port:
        policy, port = Path(home) / "policy.yaml", free_port()
        policy.write_text(json.dumps(lowpass_policy(upstream_port)))
        os.environ["LOWPASS_HOME"] = state = str(Path(home) / "state")
        key = lowpass_key({"LOWPASS_HOME": state})
        argv = ["serve", "--policy", str(policy), "--host", "127.0.0.1", "--port", str(port)]
        yield argv, Job(port, connections=1, requests=1, model="auto", key=key)


def _serve(argv: list[str]) -> None:
    from router.cli import main as lowpass

    sys.argv = ["lowpass", *argv]
    with suppress(SystemExit, KeyboardInterrupt):
        lowpass()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--stream", action="store_true", help="streams of 40 chunks instead of plain chats")
    parser.add_argument(
        "--builtins", action="store_true", help="show C functions apart, at the price of more distortion"
    )
    parser.add_argument(
        "--sort", choices=("tottime", "cumtime", "ncalls"), default="tottime", help="own time by default"
    )
    parser.add_argument("--top", type=int, default=40, help="how many functions to print")
    return parser.parse_args()


def main() -> None:
    options = _options()
    try:
        stats = profile(options)
    except LoadError as problem:
        sys.exit(f"profile: {problem}")
    stats.sort_stats(options.sort).print_stats(options.top)


if __name__ == "__main__":
    main()
