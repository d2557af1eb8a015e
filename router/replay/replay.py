"""The ledger's decisions again, under another policy: `replay` is all there is to call."""

from collections.abc import Collection, Sequence

from router.config.config import Config
from router.ledger.facts.query import Where
from router.ledger.ledger import Ledger
from router.ledger.policies import documents
from router.ledger.rollups import expired
from router.replay.egress import egress
from router.replay.estimate import differences, effects, factor
from router.replay.limited import limited
from router.replay.part import Seen, joined
from router.replay.replayed import Calibrated, Replayed
from router.replay.shifts import shifted
from router.replay.sides import compared
from router.replay.unknown import told
from router.replay.wanted import wanted
from router.replay.work import Work, parts

MOST = 50
"""Decisions that are listed one by one."""


def replay(
    ledger: Ledger,
    config: Config,
    since_ms: int | None = None,
    until_ms: int | None = None,
    where: Collection[Where] = (),
    others: Sequence[Config] = (),
    processes: int = 1,
    most: int = MOST,
) -> Replayed:
    """`config`: the policy to try. `others`: policies that the recorded decisions may be of, such as the one in force:
    what would be decided otherwise under them too, by what is known today, is no change.

    Nothing is asked of anybody, and nothing is written. Not inside an event loop; with several processes, in a process
    without threads. Raises `LedgerUnavailable`, and ValueError for a `where` of what requests don't have.
    """
    sides = compared(config, others, ledger)
    whole = joined(parts(Work(ledger, sides, wanted(where), since_ms, until_ms), processes))
    whole, found = limited(whole, differences(whole), sides)
    routes, total = effects(whole, found)
    shifts, decisions = shifted(whole, found, most)
    with ledger.reading() as connection:
        past, gone = documents(connection), expired(connection, since_ms, until_ms)
    return Replayed(
        policy=sides.new.hash,
        path=config.path,
        since_ms=since_ms,
        until_ms=until_ms,
        routes=tuple(sorted(routes, key=lambda effect: effect.route)),
        total=total,
        shifts=shifts,
        decisions=decisions,
        egress=egress(whole, sides, past),
        unknown=told(whole, found, sides, gone),
        calibrated=_calibrated(whole.seen),
    )


def _calibrated(seen: dict[str, Seen]) -> tuple[Calibrated, ...]:
    return tuple(Calibrated(name, one.answers, factor(one)) for name, one in sorted(seen.items()))
