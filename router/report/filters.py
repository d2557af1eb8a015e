"""`where` as people write it, with the labels that the ledger has."""

from collections.abc import Iterable

from router.ledger.facts import attempts, offers
from router.ledger.facts.query import Label, Where
from router.report.asked import named, wrong
from router.report.render import NO_LABEL
from router.report.source import Definition, Source

_TABLES = (attempts, offers)
_COUNTED = {dimension for table in _TABLES for grouping in table.GROUPINGS for dimension in grouping}
"""Dimensions of few labels, which are kept for good: others are not looked up."""
_LISTED = 20


def filters(definition: Definition, source: Source, texts: Iterable[str]) -> tuple[Where, ...]:
    """`source` has none yet. Raises a 400 `ClientError` for what the report or the ledger does not know."""
    return tuple(_where(definition, source, text) for text in texts)


def _where(definition: Definition, source: Source, text: str) -> Where:
    dimension, equals, labels = text.partition("=")
    inverted = dimension.endswith("!")
    dimension = dimension.removesuffix("!").strip()
    if not equals or not dimension:
        raise wrong("where", f"where: '{text[:40]}' is no filter. Write target=a,b or target!=a; (none) for none.")
    if dimension not in definition.where:
        can = named(definition.where) if definition.where else "It has no filters: leave where out."
        raise wrong("where", f"{definition.name} can't be filtered by '{dimension[:40]}'. {can}")
    if "\0" in labels:
        raise wrong("where", "where: a NUL is in no label.")
    wanted = _labels(labels)
    if dimension == "tag":
        return Where("tags", _having(source, wanted), inverted)
    return Where(dimension, _known(source, dimension, wanted), inverted)


def _labels(text: str) -> frozenset[str | None]:
    return frozenset(None if label.strip() == NO_LABEL else label.strip() for label in text.split(","))


def _having(source: Source, tags: frozenset[str | None]) -> frozenset[Label]:
    """All that stands for some of these tags: requests keep theirs as one text."""
    present = _present(source, "tags")
    parts = {label: _tags(label) for label in present}
    _check("tag", tags, sorted({tag for tag_set in parts.values() for tag in tag_set if tag is not None}))
    return frozenset(label for label, some in parts.items() if tags & some)


def _tags(label: Label) -> frozenset[str | None]:
    return frozenset({None}) if label is None else frozenset(str(label).split(","))


def _known(source: Source, dimension: str, wanted: frozenset[str | None]) -> frozenset[Label]:
    """With the ledger's own type: some labels are numbers."""
    if dimension not in _COUNTED:
        return frozenset(wanted)
    present = {str(label): label for label in _present(source, dimension) if label is not None}
    present |= {name: name for name in _declared(source, dimension)}
    _check(dimension, wanted, sorted(present))
    return frozenset(None if label is None else present.get(label, label) for label in wanted)


def _present(source: Source, dimension: str) -> list[Label]:
    """In the whole ledger: a window in which nothing happened is no mistake."""
    table = attempts if dimension in attempts.DIMENSIONS else offers
    everywhere = source.always()
    return [label for (label,) in everywhere.sums(table.TABLE, (dimension,), ("requests",))]


def _declared(source: Source, dimension: str) -> Iterable[str]:
    if dimension in ("target", "candidate", "chosen"):
        return source.targets
    return {target.model.id for target in source.targets.values()} if dimension == "model" else ()


def _check(dimension: str, wanted: frozenset[str | None], known: list[str]) -> None:
    """A ledger that has none at all can't tell what is misspelt."""
    unknown = sorted(label for label in wanted if label is not None and label not in known)
    if unknown and known:
        rest = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        listed = ", ".join(known[:_LISTED]) + rest
        raise wrong("where", f"where: there is no {dimension} '{unknown[0][:40]}'. Known: {listed}.")
