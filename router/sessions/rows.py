"""Taints as rows of the ledger: one a session and class. Nothing takes them away again."""

from collections.abc import Iterable, Iterator

from router.types.request import SessionClasses

TAINT = "INSERT INTO taints (session, data_class, firm) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
Mark = tuple[str, int]
"""A class, and whether it is firm."""


def marks(taint: SessionClasses) -> Iterator[Mark]:
    yield from ((name, 1) for name in taint.permanent)
    yield from ((name, 0) for name in taint.found)


def joined(found: Iterable[Mark]) -> SessionClasses:
    firm, loose = set[str](), set[str]()
    for name, is_firm in found:
        (firm if is_firm else loose).add(name)
    return SessionClasses(frozenset(firm), frozenset(loose))
