"""Second opinions: one detector asks at most, somebody of this machine, and only where there is something to ask."""

from collections.abc import Iterator, Mapping, Sequence

from router.classify.deep.second import SecondOpinion
from router.classify.sensitivity import Keywords, Patterns
from router.config.policy import Sensitivity
from router.config.references import report_unknown
from router.config.source import Loc, Source
from router.types.target import Target

_AT: Loc = ("sensitivity", "detectors")


def check_opinion(source: Source, sensitivity: Sensitivity, names: Sequence[str]) -> None:
    """`names` are those of all targets that the file declares, those with mistakes included."""
    asking = tuple(_asking(sensitivity))
    for index, second in asking:
        if names and second.target not in names:
            report_unknown(source, (*_AT, index, "target"), "target", second.target, names)
    for index, _ in asking[1:]:
        source.report(source.node((*_AT, index)), "a second local_llm: there is no third opinion", "keep one of them")
    if not (asking or any(loc[:2] == _AT for loc in source.dropped)):
        _report_unasked(source, sensitivity)


def check_asked(source: Source, sensitivity: Sensitivity, targets: Mapping[str, Target]) -> None:
    """`targets`: all that could be built."""
    for index, second in _asking(sensitivity):
        target = targets.get(second.target)
        if target is not None and not target.local:
            what = f"target {target.id} is not local: a second opinion never leaves this machine"
            local = ", ".join(name for name, one in targets.items() if one.local)
            remedy = f"name a local one: {local}" if local else "add a local target and name it"
            source.report(source.node((*_AT, index, "target")), what, remedy)


def _asking(sensitivity: Sensitivity) -> Iterator[tuple[int, SecondOpinion]]:
    for index, detector in enumerate(sensitivity.detectors):
        if isinstance(detector, SecondOpinion):
            yield index, detector


def _report_unasked(source: Source, sensitivity: Sensitivity) -> None:
    for index, detector in enumerate(sensitivity.detectors):
        if isinstance(detector, Keywords | Patterns) and detector.ask is not None:
            what = "nobody is there to be asked: what it finds would never count"
            remedy = "add {kind: local_llm, target: a local one} to the detectors, or remove ask"
            source.report(source.key((*_AT, index, "ask")), what, remedy)
