"""Names in a policy that refer to something: told where nothing bears them, or where they stand twice."""

from collections import Counter
from collections.abc import Iterable, Sequence

from router.config.shape import did_you_mean
from router.config.source import Loc, Source, word


def check_twice(source: Source, loc: Loc, noun: str, wanted: Sequence[str]) -> None:
    for name, times in Counter(wanted).items():
        if times > 1:
            node = source.find(loc, name, last=True)
            source.report(node, f"the {noun} '{word(node)}' is listed {times} times", "list it once")


def report_unknown(source: Source, loc: Loc, noun: str, name: str, known: Iterable[str]) -> None:
    node = source.find(loc, name)
    text = word(node) or "${…}"
    source.report(node, f"unknown {noun} '{text}'", did_you_mean(text, known))
