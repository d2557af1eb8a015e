"""Health of targets, from recent attempts: a circuit breaker for outages, and a reduced share of the traffic for
targets that fail too often or are much slower than usual.

An outage is a run of failures that is nearly impossible at the target's success rate. So the circuit of a target that
fails every second call never opens; if a request has another target, it is asked first with a probability equal to its
success rate.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from math import exp, log

TRIP_AFTER = 5
"""Minimum number of failures in a row that open a circuit."""
CHANCE = 1e-6
"""Probability below which a run of failures is an outage."""
FIRST_REST_S = 0.25
LONGEST_REST_S = 30.0
LONGEST_WISH_S = 120.0
"""Maximum time in seconds for which a target's `Retry-After` is respected."""
STEP = 0.05
"""Weight of one attempt in the success rate: about twenty attempts are remembered."""
AT_FIRST, HIGHEST = 0.8, 0.95
"""Success rate assumed of an unknown target, and the highest that is assumed when runs of failures are judged."""
DEGRADED_RATE = 0.75
"""Success rate below which a target is asked first only with that probability, if there is another target."""
SLOW = log(4)
"""Log of the factor on the usual latency from which a target is degraded; three answers that take ten times as long
reach it."""
SLOW_SHARE = 0.1
"""Share of requests that ask a slow target first, to notice when it has recovered."""
WELL_S = 60.0
"""Time in seconds after a success in which 401, 403, 404 etc. are taken as the request's fault, not the target's."""
LONGEST_RUN = 100
"""Maximum number of failures in a row before a circuit opens, at any success rate."""
LATEST, USUAL = 0.3, 0.005
"""Weights of one answer in the latest and in the usual latency."""
LEAST_MS = 25
"""Minimum time in ms that an answer counts with, so that a short delay of a fast target is no brown-out."""
BECOMES_USUAL_S = 3_600.0
"""Time in seconds after which a slow target's latency becomes its usual one."""
WARM = 8
"""Number of answers from which the usual latency is known."""
START_TOKENS = 32
"""Tokens added to an answer's length for the time until it begins. A target's whole answers are slow only if both their
time per token (with these) and their total time are, so that changes in length alone don't count."""
LATE, PATIENT_MS, OVERDUE = 1.5, 500, 0.2
"""A request that gave up after `LATE` times the usual time, or after `PATIENT_MS` ms at a target without a success for
`WELL_S`, lowers the success rate by the share `OVERDUE`. It is no failure, since the answer may just have needed
longer."""
MISPLACED = "region mismatch"
SUSPENSION_S = 3_600.0
"""Time in seconds for which a target is not asked after its provider served another region."""


_log = logging.getLogger(__name__)


class _Latency:
    """Mean log of ms: of the latest few answers (`latest`) and in the long run (`usual`)."""

    def __init__(self) -> None:
        self.answers, self.latest, self.usual, self.slow, self.slow_since = 0, 0.0, 0.0, False, 0.0

    def learn(self, log_ms: float, clock: Callable[[], float]) -> None:
        """Adds one answer (`log_ms`: log of ms). A latency that stays slow becomes the usual one."""
        self.answers += 1
        if self.answers <= WARM:
            self.usual += (log_ms - self.usual) / self.answers
            self.latest = self.usual
        else:
            self.latest += (log_ms - self.latest) * LATEST
            if self.latest - self.usual <= SLOW:
                self.usual += min(1.0, max(-1.0, log_ms - self.usual)) * USUAL
                self.slow_since = 0.0
            elif not self.slow_since:
                self.slow_since = clock()
            elif clock() - self.slow_since > BECOMES_USUAL_S:
                self.usual = self.latest
        self.slow = self.latest - self.usual > SLOW


class _Circuit:
    def __init__(self) -> None:
        self.rate, self.credit, self.last_success, self.limited = AT_FIRST, 0.0, -WELL_S, False
        """Success rate, accumulated share (see `claims_share`), last success, and whether the rate limit is reached."""
        self.failures, self.run_limit = 0, 0
        """Number of failures in a row, and the number that is an outage."""
        self.rest_s, self.resting_until, self.alone_at, self.probing = FIRST_REST_S, 0.0, 0.0, False
        """`alone_at`: time from which a request without another target may ask it, although it rests."""
        self.first, self.whole, self.total = _Latency(), _Latency(), _Latency()
        """Latencies of first bytes of streams, of whole answers per token, and of whole answers."""

    @property
    def outage(self) -> bool:
        return self.failures > 0 and self.failures >= self.run_limit

    @property
    def share(self) -> float:
        """Share of requests that ask this target first if they have another one."""
        share = self.rate if self.rate < DEGRADED_RATE else 1.0
        return min(share, SLOW_SHARE) if self.first.slow or (self.whole.slow and self.total.slow) else share

    def claims_share(self, share: float) -> bool:
        """Returns whether this request is in the share: at 0.3, three calls of ten return True."""
        self.credit += share
        if self.credit < 1:
            return False
        self.credit -= 1
        return True


class Health:
    """Health of all targets, from recent attempts. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._circuits = defaultdict[str, _Circuit](_Circuit)
        self._suspended_until: dict[str, float] = {}
        """Time until which each target is suspended for serving another region; successes don't end it."""

    def resting(self, target: str, *, alone: bool = False) -> float:
        """Returns the seconds until `target` may be asked again; 0 if it may be now, maybe as a probe. `alone`: the
        request has no other target, so it waits at most a first rest after the last failure."""
        circuit = self._circuits.get(target)
        suspended_s = self._suspension(target) if self._suspended_until else 0.0
        if circuit is None:
            return suspended_s
        until = min(circuit.resting_until, circuit.alone_at) if alone else circuit.resting_until
        return max(until - self._clock(), suspended_s, 0.0) if until else suspended_s

    def limited(self, target: str) -> bool:
        """Returns whether `target` rests because its rate limit is reached."""
        circuit = self._circuits.get(target)
        return circuit is not None and circuit.limited and circuit.resting_until > self._clock()

    def unwell(self, *targets: str, alone: bool = False) -> tuple[dict[str, float], frozenset[str]]:
        """Returns the targets that rest, with the seconds left (`alone`: see `resting`), and those that the next
        request should ask after others.

        The latter follow each target's share: at a success rate of 0.3, three of ten requests ask it first.
        """
        rests, degraded = {}, []
        for name in targets:
            circuit = self._circuits.get(name)
            if name in self._suspended_until or (circuit is not None and circuit.resting_until):
                seconds = self.resting(name, alone=alone)
                if seconds > 0:
                    rests[name] = seconds
            if not alone and circuit is not None and (share := circuit.share) < 1 and not circuit.claims_share(share):
                degraded.append(name)
        return rests, frozenset(degraded)

    def admit(self, target: str, *, last: bool = False) -> bool:
        """Claims the right to ask `target`. After an outage one caller at a time gets it, until one succeeds. `last`:
        the request has no other target; a share of these equal to the success rate gets through too."""
        circuit = self._circuits.get(target)
        rests = target in self._suspended_until or (circuit is not None and circuit.resting_until)
        if rests and self.resting(target, alone=last) > 0:
            return False
        if circuit is not None and circuit.failures and circuit.outage:
            if circuit.probing and not (last and circuit.claims_share(circuit.rate)):
                return False
            circuit.probing = True
        return True

    def succeeded(self, target: str) -> None:
        circuit = self._circuits[target]
        circuit.rate += (1 - circuit.rate) * STEP
        circuit.last_success, circuit.limited = self._clock(), False
        if circuit.failures and circuit.outage:
            _log.warning("target '%s' answers again after %d failures", target, circuit.failures)
        circuit.failures, circuit.rest_s, circuit.resting_until, circuit.probing = 0, FIRST_REST_S, 0.0, False

    def took(
        self, target: str, total_ms: float | None, first_ms: int | None, output: int, *, at_least: bool = False
    ) -> None:
        """Learns the time of an answer of `output` tokens. `first_ms`: for streams. `total_ms`: None if a slow client
        may have delayed it.

        `at_least`: the request gave up before the end, so only times above the latest mean anything.
        """
        circuit = self._circuits[target]
        whole = (circuit.whole, total_ms, START_TOKENS + output), (circuit.total, total_ms, 1)
        for latency, ms, size in ((circuit.first, first_ms, 1), *whole):
            took = None if ms is None else log(max(ms, LEAST_MS) / size)
            if took is not None and (not at_least or (latency.answers >= WARM and took > latency.latest)):
                latency.learn(took, self._clock)
        if at_least and total_ms is not None:
            usual_ms = exp(circuit.first.usual) if first_ms is not None else self.usual_ms(target, output)
            is_known = (circuit.whole if first_ms is None else circuit.first).answers >= WARM
            is_unproven = self._clock() - circuit.last_success >= WELL_S
            if total_ms >= max(4 * LEAST_MS, LATE * usual_ms) if is_known else total_ms >= PATIENT_MS and is_unproven:
                circuit.rate -= circuit.rate * OVERDUE

    def usual_ms(self, target: str, output: int) -> float:
        """Returns the usual time in ms of an answer of `output` tokens; 0 if unknown."""
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
        """Records a failure. `trips`: it counts towards an outage. `refused`: its status may concern the request only,
        which is assumed if the target has just answered others. `retry_after_s`: respected if the rate limit is reached
        (`limited`), which opens no circuit, and in an outage. `reason` is for the log."""
        trips = trips and not (refused and self._clock() - self._circuits[target].last_success < WELL_S)
        if not trips and not (limited and retry_after_s):
            return self.abandoned(target)
        circuit, now = self._circuits[target], self._clock()
        circuit.probing, circuit.limited = False, limited
        requested_s = min(retry_after_s or 0.0, LONGEST_WISH_S)
        rest_s = requested_s if limited else 0.0
        if trips:
            if not circuit.failures:
                circuit.run_limit = run_limit(circuit.rate)
            circuit.failures += 1
            circuit.rate -= circuit.rate * STEP
            # While the target rests only earlier requests can fail: the same outage, not a failed probe.
            if circuit.outage and circuit.resting_until <= now:
                rest_s = max(requested_s, circuit.rest_s)
                circuit.rest_s = min(circuit.rest_s * 2, LONGEST_REST_S)
                _log.warning("target '%s' rests %g s after %d failures: %s", target, rest_s, circuit.failures, reason)
        circuit.resting_until = max(circuit.resting_until, now + rest_s)
        circuit.alone_at = now + max(requested_s, FIRST_REST_S)

    def abandoned(self, target: str) -> None:
        """Ends an attempt without a verdict, e.g. if the client left; releases the probe."""
        circuit = self._circuits.get(target)
        if circuit is not None:
            circuit.probing = False

    def suspend(self, target: str) -> None:
        """Suspends a target that served another region than the policy expects."""
        self._suspended_until[target] = self._clock() + SUSPENSION_S

    def pardon(self) -> None:
        """Ends all suspensions, since a new policy may have corrected the region."""
        self._suspended_until.clear()

    def snapshot(self) -> dict[str, str]:
        """Returns the state of each unhealthy target: "open", "half-open", "resting" (at its own request), "failing",
        "degraded" (gets a share of its requests), or "region mismatch"."""
        states = {target: self._state(target, circuit) for target, circuit in self._circuits.items()}
        misplaced = {target: MISPLACED for target in self._suspended_until if self._suspension(target)}
        return {target: state for target, state in states.items() if state} | misplaced

    def _suspension(self, target: str) -> float:
        """Returns the seconds left of a suspension; 0 if there is none."""
        return max(0.0, self._suspended_until[target] - self._clock()) if target in self._suspended_until else 0.0

    def _state(self, target: str, circuit: _Circuit) -> str:
        if circuit.outage:
            return "open" if self.resting(target) else "half-open"
        if self.resting(target):
            return "resting"
        return "degraded" if circuit.share < 1 else "failing" if circuit.failures else ""


def run_limit(rate: float) -> int:
    """Returns how many failures in a row are less likely than `CHANCE` at this success rate."""
    return min(LONGEST_RUN, max(TRIP_AFTER, round(log(CHANCE) / log(1 - min(max(rate, 0.01), HIGHEST)))))
