"""Which attempts broke a rule of their time: found in sums of those that are alike, and read row by row only there."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from router.ledger import rows
from router.ledger.facts import attempts
from router.ledger.facts.query import Label, Where
from router.report.proof import Judge, Sent
from router.report.report import Row
from router.report.source import Source

SENT = ("policy", "class", "classes", "sent_classes", "target", "redacted", "region", "region_source")
"""Dimensions, in the order of `Sent`."""
MOST = 1_000
"""Violations that are listed; all are counted."""
LONGEST_MS = 86_400_000
"""No attempt begins later than so long after its request."""
RESTING = "circuit_open"
"""Outcome of an attempt of which nothing was sent."""


class Found(Struct, frozen=True):
    violations: int
    lost: int
    """Attempts that would have to be read one by one, and whose rows have expired."""
    listed: tuple[Row, ...] = ()


NOTHING = Found(0, 0)


def sent(labels: Sequence[object]) -> Sent:
    """Values of `SENT`, as the columns have them: empty where there is nothing."""
    texts = ["" if label is None else str(label) for label in labels]
    policy, data_class, held, classes, target, redacted, region, source = texts
    return Sent(policy, data_class, held, classes, target, int(redacted == "1"), region, source)


class Search:
    """In the window of `source`; `room`: how many more are listed."""

    def __init__(self, source: Source, judge: Judge) -> None:
        self._source, self._judge = source, judge
        self._latest_ms = _latest_ms(source)
        self.room = MOST

    def among(self, alike: Sent) -> Found:
        """Of all that was sent alike. What breaks no rule late breaks none at any earlier time."""
        if not self._judge.violation(alike, self._latest_ms):
            return NOTHING
        found = [self._in_hour(alike, hour, count) for hour, count in sorted(self._by_hour(alike).items())]
        listed = tuple(row for one in found for row in one.listed)
        return Found(sum(one.violations for one in found), sum(one.lost for one in found), listed)

    def _by_hour(self, alike: Sent) -> dict[int, int]:
        labels: list[Label] = [value if isinstance(value, int) else value or None for value in alike]
        like = (Where(name, frozenset({label})) for name, label in zip(SENT, labels, strict=True))
        found = self._source.sums(attempts.TABLE, ("hour",), ("attempts",), *like)
        return {int(hour or 0): count for (hour,), (count,) in found.items()}

    def _in_hour(self, alike: Sent, hour: int, count: int) -> Found:
        begin, end = hour * attempts.HOUR_MS, (hour + 1) * attempts.HOUR_MS
        if not self._judge.violation(alike, end + LONGEST_MS):
            return NOTHING
        always = bool(self._judge.violation(alike, begin))
        if always and not self.room:
            return Found(count, 0)
        read = list(self._read(alike, begin, end))
        broken = [row for row, rule in read if rule]
        listed = tuple(broken[: self.room])
        self.room -= len(listed)
        return Found(count, 0, listed) if always else Found(len(broken), max(0, count - len(read)), listed)

    def _read(self, alike: Sent, begin: int, end: int) -> Iterator[tuple[Row, str]]:
        """Each attempt with the rule that it broke; empty where it broke none."""
        asked = self._source.asked
        since = begin if asked.since_ms is None else max(begin, asked.since_ms)
        until = end if asked.until_ms is None else min(end, asked.until_ms)
        for kept in rows.every(self._source.connection, since, until):
            for attempt in kept.attempts:
                if _of(kept.request, attempt) == alike:
                    at_ms = int(attempt["started_ms"] or 0)
                    rule = self._judge.violation(alike, at_ms)
                    about = (alike.data_class, alike.classes, alike.target)
                    yield (kept.id, attempt["number"], at_ms, *about, rule), rule


def _of(request: rows.Line, attempt: rows.Line) -> Sent:
    held = (request[name] for name in ("policy", "data_class", "classes"))
    went = (attempt[name] for name in ("classes", "target", "redacted", "region", "region_source"))
    return sent((*held, *went))


def _latest_ms(source: Source) -> int:
    hours = [int(hour or 0) for (hour,) in source.sums(attempts.TABLE, ("hour",), ("attempts",))]
    return (max(hours, default=0) + 1) * attempts.HOUR_MS + LONGEST_MS
