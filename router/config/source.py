"""YAML with the position of every value, and all errors at once as file:line:column."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import yaml

from router.errors import Problem

# A policy file as a tree in which every value knows its line and column.

Loc: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "str | int | bool | Decimal | list[Value] | dict[str, Value] | None"


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

    def report(self, place: yaml.Node | yaml.Event | None, what: str, remedy: str) -> None:
        mark = place.start_mark if place else None
        self.report_at(mark.line if mark else 0, mark.column if mark else 0, what, remedy)

    def report_passed(self, node: yaml.Node | None, what: str, remedy: str) -> None:
        """Of a file that was sound once."""
        line, column = (node.start_mark.line, node.start_mark.column) if node else (0, 0)
        self.passed.append(Problem(self.path, line + 1, column + 1, what, remedy))

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
        nodes = [node for node in _scalars(top) if node.value == text]
        return nodes[-1 if last else 0] if nodes else top


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


# Bytes of a policy file → its tree, or the reason why there is none.

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REFERENCE = re.compile(r"\$\{[^}]*\}?")
_DEPTH = 32


def read_bytes(path: Path, source: Source) -> bytes:
    """The file's bytes; a problem and b"" where there is nothing to read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        source.report(None, "no such file", "create it, or name another policy file")
    except IsADirectoryError:
        source.report(None, "this is a directory", "name a file in it, e.g. " + str(path / "default.yaml"))
    except OSError as error:
        reason = (error.strerror or "error").lower()
        source.report(None, f"the file can't be read ({reason})", "let this user read it")
    return b""


def parse(data: bytes, source: Source) -> None:
    """Sets `source.root`, or reports why there is none."""
    try:
        text = data.decode("utf-8-sig")
        if _too_deep(text, source):
            return
        source.root = yaml.compose(text, Loader=_LOADER)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig").split("\n")
        source.report_at(len(before) - 1, len(before[-1]), "this byte is not UTF-8", "save the file as UTF-8")
        return
    except yaml.MarkedYAMLError as error:
        _report_syntax(error, text, source)
        return
    except yaml.YAMLError:
        _report_character(text, source)
        return
    if source.root is None:
        source.report(None, "the file is empty", "start it with 'version: 1', then add targets and routes")
    elif not isinstance(source.root, yaml.MappingNode):
        source.report(source.root, "a policy is a mapping", "start the file with 'version: 1'")
        source.root = None
    elif alias := _repeated(source.root, set()):
        source.report(alias, "an alias ('*') stands for this value", "write the value out in each place")
        source.root = None


def _too_deep(text: str, source: Source) -> bool:
    """Composing is recursive in C: a deep enough file would end the process instead of raising an error."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH:
            source.report(event, "nested too deeply", "flatten it: a policy is a few levels deep")
            return True
    return False


def _repeated(node: yaml.Node, seen: set[int]) -> yaml.Node | None:
    """A node met twice: aliases may be cyclic or grow without bound, and have one place where two are meant."""
    if id(node) in seen:
        return node
    seen.add(id(node))
    children = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
    repeated = (_repeated(child, seen) for child in children if isinstance(child, yaml.Node))
    return next(filter(None, repeated), None)


def _report_syntax(error: yaml.MarkedYAMLError, text: str, source: Source) -> None:
    mark = error.problem_mark or error.context_mark
    lines = text.split("\n")
    after = lines[mark.line :] if mark else []
    what = f"not valid YAML ({error.problem or error.context})"
    if error.context_mark and not any(line.strip() and not line.startswith("#") for line in after):
        mark, remedy = error.context_mark, "the file ends inside it: close it"
    else:
        remedy = _syntax_remedy(after[0] if after else "", mark.column if mark else 0, what)
    source.report_at(mark.line if mark else 0, mark.column if mark else 0, what, remedy)


def _syntax_remedy(line: str, column: int, what: str) -> str:
    reference = _REFERENCE.search(line, max(column - 1, 0))
    if reference and reference.start() <= column:
        return f"""inside {{ }} quote the reference: "{reference.group()}\""""
    if line[column : column + 1] == "\t":
        return "indent with spaces, not with a tab"
    if "another document" in what or "single document" in what:
        return "keep one document in the file: remove '---'"
    if "undefined alias" in what:
        return "define it before with '&', or quote the value if it starts with '*'"
    if "escape character" in what:
        return "put the value in single quotes: there a backslash is itself"
    return "close every bracket and quote, put a space after ':' and indent alike"


def _report_character(text: str, source: Source) -> None:
    """YAML admits no control characters; the parsers disagree on how to say where."""
    index = next((i for i, c in enumerate(text) if not c.isprintable() and c not in "\n\r\t"), 0)
    before = text[:index].split("\n")
    source.report_at(len(before) - 1, len(before[-1]), "a control character", "delete it")


# The tree of a policy file → plain values.

_VALUES_REFERENCE = re.compile(r"\$\{([^}]*)\}?")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_TAG = "tag:yaml.org,2002:"


def construct(root: yaml.Node, source: Source, environ: Mapping[str, str]) -> Value:
    """The tree as plain values, `${NAME}` filled in.

    Only `true` and `false` are booleans (NO is a country), and a number with a fraction stays exact.
    """
    return _Constructor(source, environ).value(root)


class _Constructor:
    def __init__(self, source: Source, environ: Mapping[str, str]) -> None:
        self._source, self._environ = source, environ

    def value(self, node: yaml.Node) -> Value:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        return [self.value(item) for item in node.value]

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Value]:
        values: dict[str, Value] = {}
        lines: dict[str, int] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._source.report(key, "a key must be a word", "replace the list or mapping before ':' by a name")
            elif key.value in values:
                what = f"the key '{key.value}' stands here twice (first in line {lines[key.value]})"
                self._source.report(key, what, "keep one of the two")
            else:
                values[key.value] = self.value(child)
                lines[key.value] = key.start_mark.line + 1
        return values

    def _scalar(self, node: yaml.ScalarNode) -> Value:
        text, kind = node.value, node.tag.removeprefix(_TAG)
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return bool(text.lower() == "true")
        if kind in ("int", "float"):
            return _number(text)
        if kind not in ("str", "bool", "timestamp", "merge", "value"):
            self._source.report(node, f"the tag {node.tag} is not supported", "remove the tag")
        return _VALUES_REFERENCE.sub(lambda match: self._lookup(node, match), text) if "${" in text else text

    def _lookup(self, node: yaml.ScalarNode, match: re.Match[str]) -> str:
        name = _NAME.fullmatch(match[1])
        if not name or not match[0].endswith("}"):
            self._source.report(node, "a reference that can't be read", "write ${NAME} or ${NAME:-default}")
            return match[0]
        value = self._environ.get(name[1]) or name[2]
        if value is None:
            self._source.unset = True
            what = f"the environment variable {name[1]} is not set"
            self._source.report(node, what, f"export {name[1]}=…, or give a default: ${{{name[1]}:-…}}")
            return match[0]
        return value


def _number(text: str) -> Value:
    """From the source text: a float would already have lost digits. Not a decimal number: stays text."""
    with suppress(ValueError):
        return int(text)
    with suppress(InvalidOperation):
        if (number := Decimal(text)).is_finite():
            return number
    return text
