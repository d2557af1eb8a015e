"""Specialists: targets for requests of some tasks, or for texts in some languages, and for nothing else."""

from collections.abc import Sequence

from msgspec import Struct

from router.types.classification import Classification
from router.types.languages import UNKNOWN, Languages
from router.types.request import Request
from router.types.target import Target
from router.types.task import Task

SURE = 0.7
"""So likely a guessed task must be. Of 33 requests for a specialist 20 then reach one, and 1 of 16 others that only
sound like it; at 0.95 they are 14 and none (tests/decide/test_special.py). The rest has the route's other targets."""
_ANY: frozenset[Task] = frozenset()


class Asked(Struct, frozen=True, kw_only=True):
    """What a request is for, as far as specialists go by it."""

    task: Task = Task.CHAT
    stated: bool = False
    """By its caller; else it is a guess …"""
    sure: bool = False
    """… and this says how good a one."""
    route: frozenset[Task] = _ANY
    """What all targets of its route are for: to name such a route is to say so. Empty: some are for anything."""
    languages: Languages = UNKNOWN


ANYTHING = Asked()


def asked(request: Request, seen: Classification, targets: Sequence[Target], languages: Languages) -> Asked:
    """`targets`: all of the route."""
    stated = request.limits.task
    return Asked(
        task=stated or seen.task,
        stated=stated is not None,
        sure=stated is not None or _sure(seen),
        route=targets[0].tasks.intersection(*[target.tasks for target in targets]),
        languages=languages,
    )


def special(target: Target, asked: Asked) -> str:
    """Why a specialist is not there for this; "" where it is, and for whoever is no specialist."""
    return _task(target, asked) or (_language(target, asked) if target.languages else "")


def _task(target: Target, asked: Asked) -> str:
    if not target.tasks or (asked.route and not asked.stated):
        return ""
    if asked.task in target.tasks:
        return "" if asked.sure else f"is for {_list(target.tasks)}, and it is not clear that this is {asked.task}"
    taken = "is" if asked.stated else "looks like"
    return f"is for {_list(target.tasks)}, and this {taken} {asked.task}"


def _language(target: Target, asked: Asked) -> str:
    known = asked.languages
    into = known.target if Task.TRANSLATION in (asked.route or {asked.task}) else ""
    for code, word in ((known.source, "in"), (into, "to be put into")):
        if code and code not in target.languages:
            return f"is for texts in {_list(target.languages)}, and this is {word} {code}"
    if not known.source and not asked.route:
        return f"is for texts in {_list(target.languages)}, and it is not clear what this is in"
    return ""


def _list(words: frozenset[Task] | frozenset[str]) -> str:
    return ", ".join(sorted(words))


def _sure(seen: Classification) -> bool:
    """By the traits, which are kept: decided again, it is as sure."""
    if seen.reading is None or seen.task is Task.TOOL_USE:
        return True
    return seen.reading.share(seen.task) >= SURE
