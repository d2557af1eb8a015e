"""What a busy disk costs one client: `python -m bench.disk`. Another process writes to the ledger's disk meanwhile.

Quiet and busy rounds take turns, so a slow minute of the machine hits both alike.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.children import cores, generator, upstream
from bench.load import Job, Quantiles
from bench.peers import PEERS, Site

CHUNK = 1 << 20
FILE_CHUNKS = 500
"""Bytes of a write, and writes until the file begins anew."""
SYNC_S = 1.0


def write_forever(path: Path, per_second: float) -> None:
    """Writes `per_second` chunks, and has them on the disk once a second."""
    chunk, began, number, synced = os.urandom(CHUNK), time.monotonic(), 0, 0.0
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(chunk)
            number += 1
            if number % FILE_CHUNKS == 0:
                file.seek(0)
            if time.monotonic() - synced > SYNC_S:
                os.fdatasync(file.fileno())
                synced = time.monotonic()
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))


@contextmanager
def busy(folder: Path, megabytes: float) -> Iterator[None]:
    writer = multiprocessing.Process(target=write_forever, args=(folder / "busy", megabytes), daemon=True)
    writer.start()
    try:
        yield
    finally:
        writer.kill()
        writer.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.disk", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--megabytes", type=float, default=100, help="written a second")
    options = parser.parse_args()
    place = cores()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lowpass-disk-")))
        port = stack.enter_context(upstream(place.load))
        load = stack.enter_context(generator(place.load))
        (home / "lowpass").mkdir()
        gateway = stack.enter_context(PEERS["lowpass"](Site(port, home / "lowpass", place)))
        job = Job(gateway.port, options.connections, options.requests, model=gateway.model, key=gateway.key)
        load.run(job)
        for number in range(options.rounds):
            print(f"round {number + 1}, quiet: {_line(load.run(job).latency_ms)}", flush=True)
            with busy(home, options.megabytes):
                print(f"round {number + 1}, busy:  {_line(load.run(job).latency_ms)}", flush=True)


def _line(latency: Quantiles) -> str:
    return f"p50 {latency.p50:.2f} ms, p99 {latency.p99:.2f} ms, {latency.p99 / latency.p50:.1f} x"


if __name__ == "__main__":
    main()
