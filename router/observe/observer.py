"""Who is told of requests that are over: in batches, by a thread of its own, so that no request waits for it."""

import logging
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from time import time_ns
from typing import Protocol

from router.observe.lines import line, written
from router.observe.observed import Observed
from router.types.request import Endpoint

EVERY_S = 0.1
"""How often those that are over are told of: what waits is kept alive, and the collector of garbage looks at it."""
MOST_WAITING = 10_000
"""Requests that wait to be told of; what comes beyond is counted and dropped."""
CLOSING_S = 3.0
"""How long the end of the process waits for collectors."""
_log = logging.getLogger("lowpass")


class Sink(Protocol):
    """`tell` runs in the observer's thread and may block."""

    def tell(self, batch: Sequence[Observed]) -> None: ...
    def close(self) -> None: ...


class Lines:
    """To standard error."""

    def tell(self, batch: Sequence[Observed]) -> None:
        written(map(line, batch), sys.stderr.fileno())

    def close(self) -> None:
        """Nothing is kept back."""


class Observer:
    """One for a process. `begin` and `end` are called by the event loop, everything else happens in the thread."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._over: deque[Observed] = deque()
        self._closing = threading.Event()
        self._dropped, self._broken = 0, set[int]()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def begin(self, identifier: str, endpoint: Endpoint, headers: Iterable[tuple[bytes, bytes]]) -> Observed:
        return Observed(identifier, endpoint, headers)

    def end(self, observed: Observed) -> None:
        observed.ended_ns = time_ns()
        if len(self._over) < MOST_WAITING:
            self._over.append(observed)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Blocks until all is told, or as long as that may take."""
        self._closing.set()
        self._thread.join(CLOSING_S)

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            self._tell()
        self._tell()
        for sink in self._sinks:
            sink.close()

    def _tell(self) -> None:
        batch = [self._over.popleft() for _ in range(len(self._over))]
        for number, sink in enumerate(self._sinks if batch else ()):
            try:
                sink.tell(batch)
            except Exception as error:
                self._complain(number, error)
        if dropped := self._dropped:
            self._dropped -= dropped
            _log.warning("%d requests were not told of: logs or spans are not taken fast enough", dropped)

    def _complain(self, number: int, error: Exception) -> None:
        """Once for each; without the message, which may quote what it could not tell."""
        if number not in self._broken:
            self._broken.add(number)
            _log.error("%s can't be told of requests: %s", type(self._sinks[number]).__name__, type(error).__name__)


def observer(lines: bool, environ: Mapping[str, str]) -> Observer | None:
    """None where nobody watches. `environ` may have OpenTelemetry's standard variables."""
    sinks: list[Sink] = [Lines()] if lines else []
    if wanted(environ):
        try:
            from router.observe.otlp import Otlp
        except ImportError:
            _log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set and does nothing: pip install 'lowpass[otel]'")
        else:
            sinks.append(Otlp(environ))
    return Observer(sinks) if sinks else None


def wanted(environ: Mapping[str, str]) -> bool:
    """An endpoint is named, and nobody says that it is not to be used."""
    named = any(environ.get(f"OTEL_EXPORTER_OTLP_{part}ENDPOINT") for part in ("", "TRACES_", "METRICS_"))
    return named and environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"
