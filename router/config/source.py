"""A policy file as a tree in which every value knows its line and column."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol, TypeAlias

import yaml

from router.errors import Problem

Loc: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "str | int | bool | Decimal | list[Value] | dict[str, Value] | None"


class Mark(Protocol):
    """A place in the text; both count from 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


@dataclass
class Source:
    """One file: its node tree, and the problems found in it so far."""

    path: str
    root: yaml.Node | None = None
    problems: list[Problem] = field(default_factory=list)
    passed: list[Problem] = field(default_factory=list)
    """What only the time has made a mistake: no reason not to start."""
    dropped: set[Loc] = field(default_factory=set)
    """What was taken out because of a mistake: its absence is no mistake of its own."""
    unset: bool = False
    """A variable is missing: what depends on its value can't be judged."""

    def report(self, node: yaml.Node | None, what: str, remedy: str) -> None:
        self.report_mark(node.start_mark if node else None, what, remedy)

    def report_passed(self, node: yaml.Node | None, what: str, remedy: str) -> None:
        """Of a file that was sound once."""
        line, column = (node.start_mark.line, node.start_mark.column) if node else (0, 0)
        self.passed.append(Problem(self.path, line + 1, column + 1, what, remedy))

    def report_mark(self, mark: Mark | None, what: str, remedy: str) -> None:
        self.report_at(mark.line if mark else 0, mark.column if mark else 0, what, remedy)

    def report_at(self, line: int, column: int, what: str, remedy: str) -> None:
        """`line` and `column` count from 0."""
        problem = Problem(self.path, line + 1, column + 1, what, remedy)
        if problem not in self.problems:
            self.problems.append(problem)

    def node(self, loc: Loc) -> yaml.Node | None:
        """The deepest node on the way to `loc`: a missing key or a union's tag stays on its parent."""
        return self.walk(loc)[1]

    def key(self, loc: Loc) -> yaml.Node | None:
        """The key that `loc` ends with, where its value has one; else its value."""
        _, parent = self.walk(loc[:-1])
        return next((key for key, _ in pairs(parent) if key.value == loc[-1]), None) or self.node(loc)

    def walk(self, loc: Loc) -> tuple[Loc, yaml.Node | None]:
        """The parts of `loc` that exist, and the node they lead to."""
        node, tagged = self.root, False
        found: Loc = ()
        for part in loc:
            if not tagged and _kind(node) == part:
                tagged = True
                continue
            child = _child(node, part)
            if child is not None:
                node, found, tagged = child, (*found, part), False
        return found, node

    def text(self, loc: Loc) -> str:
        """The value at `loc` as the file has it, before any `${NAME}` is filled in."""
        return word(self.node(loc))

    def drop(self, loc: Loc) -> None:
        """Takes the part at `loc` out of the tree."""
        self.dropped.add(loc)
        _, parent = self.walk(loc[:-1])
        if isinstance(parent, yaml.MappingNode):
            parent.value = [pair for pair in parent.value if pair[0].value != loc[-1]]
        elif isinstance(parent, yaml.SequenceNode):
            parent.value = [item for index, item in enumerate(parent.value) if index != loc[-1]]

    def find(self, loc: Loc, text: str, *, last: bool = False) -> yaml.Node | None:
        """The first (or last) key or value below `loc` that reads `text`; else the node of `loc`."""
        top = self.node(loc)
        found = [node for node in _scalars(top) if node.value == text]
        return found[-1 if last else 0] if found else top


def word(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def pairs(node: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode))


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode):
        return node.value[part] if isinstance(part, int) and part < len(node.value) else None
    return next((value for key, value in pairs(node) if key.value == part), None)


def _kind(node: yaml.Node | None) -> str | None:
    kind = _child(node, "kind")
    return kind.value if isinstance(kind, yaml.ScalarNode) else None


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    for key, value in pairs(node):
        yield key
        yield from _scalars(value)
