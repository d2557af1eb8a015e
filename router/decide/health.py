"""What recent attempts say about each target: a circuit breaker for outages, and a share of the traffic for one that
fails too often or is much slower than usual.

An outage is a run of failures that is as good as impossible at the target's success rate, so a target that fails every
second call is never closed off: its calls succeed half of the time. Where a request has another target to go to, such
a target is asked first in as many cases as it succeeds.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from math import exp, log

TRIP_AFTER = 5
"""Failures in a row that open the circuit of a target that was always well."""
CHANCE = 1e-6
"""A run of failures that is less likely than this is an outage."""
FIRST_REST_S = 0.25
LONGEST_REST_S = 30.0
LONGEST_WISH_S = 120.0
"""For as long at most a target is left alone because it said so (`Retry-After`)."""
STEP = 0.05
"""What one attempt weighs in the success rate: some twenty attempts are remembered."""
AT_FIRST, HIGHEST = 0.8, 0.95
"""Success rates of a target of which nothing is known, and of the best of all, for the question what is a run."""
DEGRADED_RATE = 0.75
"""A target with a lower success rate is asked first in as large a share of the cases where there is another."""
SLOW = log(4)
"""Latency, against the usual one, from which a target is degraded: the mean of the last few reaches it in three answers
that take ten times as long."""
SLOW_SHARE = 0.1
"""Of the requests, that a slow target is asked first by: they show when it is as quick as usual again."""
WELL_S = 60.0
"""A target that has answered within so many seconds is not gone, whatever it says of one request: 401, 403, 404 …"""
LONGEST_RUN = 100
"""Failures in a row that are an outage of any target."""
LATEST, USUAL = 0.3, 0.005
"""What one answer weighs in the latest and in the usual latency."""
LEAST_MS = 25
"""Quicker answers count as so quick: a busy moment is no brown-out."""
BECOMES_USUAL_S = 3_600.0
"""A target that is slow for so long has become so."""
WARM = 8
"""Answers that make a usual latency."""
START_TOKENS = 32
"""An answer takes as long to begin as so many tokens take, or far longer: whole answers are slow where they are both by
the token, with these, and as they are. Then neither short ones after long ones are, nor the reverse."""
LATE, PATIENT_MS, OVERDUE = 1.5, 500, 0.2
"""A request that gave up after `LATE` times what is usual, or after `PATIENT_MS` at a target that has not answered for
`WELL_S`, takes this much of its success rate: others are asked first more often. It is no failure, for it may just have
needed longer."""
MISPLACED = "region mismatch"
SUSPENSION_S = 3_600.0
"""How long a target is not asked whose provider says that it served another region than it was asked for."""


_log = logging.getLogger(__name__)


class _Latency:
    """Logarithms of ms: of the last few answers, and of usual ones."""

    def __init__(self) -> None:
        self.answers, self.latest, self.usual, self.slow, self.slow_since = 0, 0.0, 0.0, False, 0.0

    def learn(self, took: float, clock: Callable[[], float]) -> None:
        """Of one more answer. What is slow for long becomes usual."""
        self.answers += 1
        if self.answers <= WARM:
            self.usual += (took - self.usual) / self.answers
            self.latest = self.usual
        else:
            self.latest += (took - self.latest) * LATEST
            if self.latest - self.usual <= SLOW:
                self.usual += min(1.0, max(-1.0, took - self.usual)) * USUAL
                self.slow_since = 0.0
            elif not self.slow_since:
                self.slow_since = clock()
            elif clock() - self.slow_since > BECOMES_USUAL_S:
                self.usual = self.latest
        self.slow = self.latest - self.usual > SLOW


class _Circuit:
    def __init__(self) -> None:
        self.rate, self.credit, self.well_at, self.limited = AT_FIRST, 0.0, -WELL_S, False
        """… when it last succeeded, and whether it rests because of its rate limit."""
        self.failures, self.run_limit = 0, 0
        """Failures in a row, and how many of them are an outage."""
        self.rest_s, self.resting_until, self.alone_at, self.probing = FIRST_REST_S, 0.0, 0.0, False
        """`alone_at`: from when on a request without another target may ask it, though it rests."""
        self.first, self.whole, self.total = _Latency(), _Latency(), _Latency()
        """Of the first byte of streams, and of whole answers by the token and as they are."""

    @property
    def outage(self) -> bool:
        return self.failures > 0 and self.failures >= self.run_limit

    @property
    def share(self) -> float:
        """Of the requests that may ask it first, where there is another target."""
        share = self.rate if self.rate < DEGRADED_RATE else 1.0
        return min(share, SLOW_SHARE) if self.first.slow or (self.whole.slow and self.total.slow) else share

    def is_of(self, share: float) -> bool:
        """Whether this request is one of the share: asked ten times, three are at 0.3."""
        self.credit += share
        if self.credit < 1:
            return False
        self.credit -= 1
        return True


class Health:
    """What recent attempts say about each target. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._circuits = defaultdict[str, _Circuit](_Circuit)
        self._suspended: dict[str, float] = {}
        """By target, until when. An answer that arrives does not end it."""

    def resting(self, target: str, *, alone: bool = False) -> float:
        """Seconds until `target` may be asked again; 0 when it may be now (then possibly as a probe). `alone`: by a
        request without another target, which waits for no longer than a first rest after the last failure."""
        circuit = self._circuits.get(target)
        suspended_s = self._suspension(target) if self._suspended else 0.0
        if circuit is None:
            return suspended_s
        until = min(circuit.resting_until, circuit.alone_at) if alone else circuit.resting_until
        return max(until - self._clock(), suspended_s, 0.0) if until else suspended_s

    def limited(self, target: str) -> bool:
        """Whether it rests because its rate limit is reached."""
        circuit = self._circuits.get(target)
        return circuit is not None and circuit.limited and circuit.resting_until > self._clock()

    def unwell(self, *targets: str, alone: bool = False) -> tuple[dict[str, float], frozenset[str]]:
        """Those of the targets that rest, and for how many seconds more (`alone`: see `resting`); and those that the
        next request should ask after others, if it has any.

        The latter follow the share of a target: of ten requests three ask it first at a success rate of 0.3.
        """
        rests, degraded = {}, []
        for name in targets:
            circuit = self._circuits.get(name)
            if name in self._suspended or (circuit is not None and circuit.resting_until):
                seconds = self.resting(name, alone=alone)
                if seconds > 0:
                    rests[name] = seconds
            if not alone and circuit is not None and (share := circuit.share) < 1 and not circuit.is_of(share):
                degraded.append(name)
        return rests, frozenset(degraded)

    def admit(self, target: str, *, last: bool = False) -> bool:
        """Claims the right to ask `target`; after an outage only one caller at a time gets it, until one succeeds.
        `last`: the request has no other target, so its share is what the success rate is."""
        circuit = self._circuits.get(target)
        rests = target in self._suspended or (circuit is not None and circuit.resting_until)
        if rests and self.resting(target, alone=last) > 0:
            return False
        if circuit is not None and circuit.failures and circuit.outage:
            if circuit.probing and not (last and circuit.is_of(circuit.rate)):
                return False
            circuit.probing = True
        return True

    def succeeded(self, target: str) -> None:
        circuit = self._circuits[target]
        circuit.rate += (1 - circuit.rate) * STEP
        circuit.well_at, circuit.limited = self._clock(), False
        if circuit.failures and circuit.outage:
            _log.warning("target '%s' answers again after %d failures", target, circuit.failures)
        circuit.failures, circuit.rest_s, circuit.resting_until, circuit.probing = 0, FIRST_REST_S, 0.0, False

    def took(
        self, target: str, total_ms: float | None, first_ms: int | None, output: int, *, at_least: bool = False
    ) -> None:
        """The time of an answer of so many tokens; `first_ms`: of streams. `total_ms`: None where its client may have
        been what was slow.

        `at_least`: it was not waited for to its end, so only a time above the latest says anything.
        """
        circuit = self._circuits[target]
        whole = (circuit.whole, total_ms, START_TOKENS + output), (circuit.total, total_ms, 1)
        for latency, ms, size in ((circuit.first, first_ms, 1), *whole):
            took = None if ms is None else log(max(ms, LEAST_MS) / size)
            if took is not None and (not at_least or (latency.answers >= WARM and took > latency.latest)):
                latency.learn(took, self._clock)
        if at_least and total_ms is not None:
            usual_ms = exp(circuit.first.usual) if first_ms is not None else self.usual_ms(target, output)
            known = (circuit.whole if first_ms is None else circuit.first).answers >= WARM
            long = self._clock() - circuit.well_at >= WELL_S
            if total_ms >= max(4 * LEAST_MS, LATE * usual_ms) if known else total_ms >= PATIENT_MS and long:
                circuit.rate -= circuit.rate * OVERDUE

    def usual_ms(self, target: str, output: int) -> float:
        """Of an answer of so many tokens; 0: not known."""
        whole = self._circuits[target].whole
        return exp(whole.usual) * (START_TOKENS + output) if whole.answers >= WARM else 0.0

    def failed(
        self,
        target: str,
        *,
        trips: bool,
        refused: bool = False,
        limited: bool = False,
        retry_after_s: float | None = None,
        reason: str = "",
    ) -> None:
        """`retry_after_s`: the upstream's own wish, which is kept where its rate limit is reached (`limited`), without
        opening the circuit, and in an outage. `refused`: by a status that may be about the request or about the target;
        it is the former's fault where the latter has just answered others. `reason` is for the log."""
        trips = trips and not (refused and self._clock() - self._circuits[target].well_at < WELL_S)
        if not trips and not (limited and retry_after_s):
            return self.abandoned(target)
        circuit, now = self._circuits[target], self._clock()
        circuit.probing, circuit.limited = False, limited
        wish_s = min(retry_after_s or 0.0, LONGEST_WISH_S)
        rest_s = wish_s if limited else 0.0
        if trips:
            if not circuit.failures:
                circuit.run_limit = run_limit(circuit.rate)
            circuit.failures += 1
            circuit.rate -= circuit.rate * STEP
            # While it rests, only requests from before can fail: the same outage, not a failed probe.
            if circuit.outage and circuit.resting_until <= now:
                rest_s = max(wish_s, circuit.rest_s)
                circuit.rest_s = min(circuit.rest_s * 2, LONGEST_REST_S)
                _log.warning("target '%s' rests %g s after %d failures: %s", target, rest_s, circuit.failures, reason)
        circuit.resting_until = max(circuit.resting_until, now + rest_s)
        circuit.alone_at = now + max(wish_s, FIRST_REST_S)

    def abandoned(self, target: str) -> None:
        """The attempt ended without a verdict (the client left): a probe is given back."""
        circuit = self._circuits.get(target)
        if circuit is not None:
            circuit.probing = False

    def suspend(self, target: str) -> None:
        """It was served in another region than the one that the policy counts on."""
        self._suspended[target] = self._clock() + SUSPENSION_S

    def pardon(self) -> None:
        """Another policy is in force: it may have been put right."""
        self._suspended.clear()

    def snapshot(self) -> dict[str, str]:
        """Every target that is not plainly healthy: "open", "half-open", "resting" (its own wish), "failing",
        "degraded" (it gets a share of its requests), or "region mismatch"."""
        states = {target: self._state(target, circuit) for target, circuit in self._circuits.items()}
        misplaced = {target: MISPLACED for target in self._suspended if self._suspension(target)}
        return {target: state for target, state in states.items() if state} | misplaced

    def _suspension(self, target: str) -> float:
        """Seconds left of it."""
        return max(0.0, self._suspended[target] - self._clock()) if target in self._suspended else 0.0

    def _state(self, target: str, circuit: _Circuit) -> str:
        if circuit.outage:
            return "open" if self.resting(target) else "half-open"
        if self.resting(target):
            return "resting"
        return "degraded" if circuit.share < 1 else "failing" if circuit.failures else ""


def run_limit(rate: float) -> int:
    """Failures in a row that are less likely than `CHANCE` at this success rate."""
    return min(LONGEST_RUN, max(TRIP_AFTER, round(log(CHANCE) / log(1 - min(max(rate, 0.01), HIGHEST)))))
