"""What a replay can't know, in plain words, each with the number of requests that it is about."""

from collections.abc import Iterator

import numpy as np

from router.replay.estimate import LEAST_SEEN, Differences
from router.replay.part import REFUSED, SERVED, Part, Seen
from router.replay.replayed import Unknown
from router.replay.sides import Compared

_TEXTS = {
    "expired": "have no rows any more, only sums: they are left out.",
    "unshaped": "were decided before lowpass kept what it takes to decide them again: they are left out.",
    "undecided": "have no decision: they are left out.",
    "unreadable": "have a decision in another form: they are left out.",
    "unsettled": "are in progress, or were ended by a crash, and nobody knows what they cost: they are left out.",
    "judges": "are questions of judges, which follow the answers that they judge: they are left out.",
    "other_policy": (
        "were decided under policies that are not at hand: what was learned since then counts as if the new policy had"
        " done it. Where it is the policy in force, name it with --against."
    ),
    "learned": "would be decided otherwise today under their own policy as well, by what was learned: no change.",
    "unanswered": (
        "would go elsewhere, and nobody answered them (failures of providers, used-up budgets, loops, clients that"
        " left), which is not played again: no change in cost and passes."
    ),
    "class": "have a class that the policy lacks: they are given every class, the strictest.",
    "redaction": "would be redacted, and nobody knows what would be left: taken as if nothing could be replaced.",
    "downgraded": "would meet a used-up budget that sends them to another route: no change is counted.",
    "unseen": "were refused and would be served: what their answers are worth nobody has seen.",
    "cost": "would go to a target whose cost is not known: no change in cost is counted.",
    "passes": "have no known pass rate, before or after: no change in passes is counted.",
    "detectors": (
        "have the classes of the detectors of their time: what others would find can't be known, as prompts are not"
        " kept."
    ),
    "behaviour": (
        "are taken to come as they came, in sessions that go on as they did: clients that ask more, less or again"
        " because of other answers or prices can't be known."
    ),
}

_UNASKED = ("never_asked", "hardly_asked")
CODES = (*_TEXTS, *_UNASKED)


def told(part: Part, found: Differences, sides: Compared, expired: int) -> tuple[Unknown, ...]:
    counts = {**part.unknown, **_derived(part, found, sides), "expired": expired}
    plain = [Unknown(code, counts[code], text) for code, text in _TEXTS.items() if counts.get(code)]
    return (*plain, *_unasked(part))


def _derived(part: Part, found: Differences, sides: Compared) -> dict[str, int]:
    rows = part.rows
    now = sides.new.config.sensitivity.detectors
    differ = any(side.config.sensitivity.detectors != now for side in sides.old.values())
    return {
        "unseen": int(((rows["before"] == REFUSED) & (rows["after"] == SERVED)).sum()),
        "cost": int(found.no_cost.sum()),
        "passes": int(found.no_passes.sum()),
        "detectors": len(rows) if differ else 0,
        "behaviour": len(part.changed),
    }


def _unasked(part: Part) -> Iterator[Unknown]:
    """New choices of which little or nothing was seen."""
    to = part.changed["to"]
    counts = np.bincount(to[to >= 0], minlength=len(part.targets))
    for target, count in zip(part.targets, counts.tolist(), strict=True):
        answers = part.seen.get(target, Seen()).answers
        if count and not answers:
            text = f"would go to {target}, which has answered nobody here: its cost and pass rate are prior knowledge."
            yield Unknown("never_asked", count, text)
        elif count and answers < LEAST_SEEN:
            text = (
                f"would go to {target}, of which only {answers} answers were seen: its expected cost is not corrected."
            )
            yield Unknown("hardly_asked", count, text)
