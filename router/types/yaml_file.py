"""YAML with the position of every value, and with all mistakes reported at once as file:line:column."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from msgspec import Struct

# A file as a tree in which every value has its line and column.

Loc: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = "str | int | bool | Decimal | list[Value] | dict[str, Value] | None"


class Problem(Struct, frozen=True):
    """One mistake in a file, with its place (1-based) and its remedy."""

    file: str
    line: int
    column: int
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.what}: {self.remedy}"


@dataclass
class YamlFile:
    """A file with its node tree and the problems found in it so far."""

    path: str
    noun: str = "policy"
    """What the file holds, for messages."""
    start: str = "'version: 1', then add targets and routes"
    """How the file begins, for messages."""
    root: yaml.Node | None = None
    problems: list[Problem] = field(default_factory=list)
    passed: list[Problem] = field(default_factory=list)
    """Mistakes caused only by the passing of time. They don't prevent a start."""
    dropped: set[Loc] = field(default_factory=set)
    """Places removed because of a mistake. Their absence is not another mistake."""
    unset: bool = False
    """Whether a variable is not set, so that what depends on it can't be checked."""

    environ: Mapping[str, str] | None = None
    """Values of `${NAME}` references; None to leave the references as they are."""

    def report(
        self, place: Loc | yaml.Node | yaml.Event | None, problem: str, remedy: str, *, passed: bool = False
    ) -> None:
        place = self.node(place) if isinstance(place, tuple) else place
        mark = place.start_mark if place else None
        self.report_at(mark.line if mark else 0, mark.column if mark else 0, problem, remedy, passed=passed)

    def report_at(self, line: int, column: int, problem: str, remedy: str, *, passed: bool = False) -> None:
        """Adds a problem at a line and column that count from 0. `passed`: only the passing of time made it one."""
        row, rows = Problem(self.path, line + 1, column + 1, problem, remedy), self.passed if passed else self.problems
        if row not in rows:
            rows.append(row)

    def node(self, loc: Loc) -> yaml.Node | None:
        """Returns the deepest node on the way to `loc`. A missing key or a union's tag belongs to its parent."""
        return self.walk(loc)[1]

    def key(self, loc: Loc) -> yaml.Node | None:
        """Returns the node of the key that `loc` ends with, or of its value if that has no key."""
        _, parent = self.walk(loc[:-1])
        return next((key for key, _ in pairs(parent) if key.value == loc[-1]), None) or self.node(loc)

    def walk(self, loc: Loc) -> tuple[Loc, yaml.Node | None]:
        """Returns the parts of `loc` that exist, and the node they lead to."""
        node, in_union = self.root, False
        trail: Loc = ()
        for part in loc:
            kind = _child(node, "kind")
            if not in_union and isinstance(kind, yaml.ScalarNode) and kind.value == part:
                in_union = True
                continue
            child = _child(node, part)
            if child is not None:
                node, trail, in_union = child, (*trail, part), False
        return trail, node

    def text(self, loc: Loc) -> str:
        """Returns the value at `loc` as written in the file, before any `${NAME}` is filled in."""
        return word(self.node(loc))

    def drop(self, loc: Loc) -> None:
        """Removes the part at `loc` from the tree."""
        self.dropped.add(loc)
        _, parent = self.walk(loc[:-1])
        if isinstance(parent, yaml.MappingNode):
            parent.value = [pair for pair in parent.value if pair[0].value != loc[-1]]
        elif isinstance(parent, yaml.SequenceNode):
            parent.value = [item for index, item in enumerate(parent.value) if index != loc[-1]]

    def find(self, loc: Loc, text: str, *, last: bool = False) -> yaml.Node | None:
        """Returns the first (or last) key or value below `loc` that equals `text`, else the node of `loc`."""
        top = self.node(loc)
        nodes = [node for node in _scalars(top) if node.value == text]
        return nodes[-1 if last else 0] if nodes else top

    def report_unknown(self, loc: Loc, noun: str, name: str, known: Iterable[str]) -> None:
        """Reports a name that refers to something that does not exist."""
        node = self.find(loc, name)
        text = word(node) or "${…}"
        self.report(node, f"unknown {noun} '{text}'", did_you_mean(text, known))

    def report_twice(self, loc: Loc, noun: str, names: Iterable[str]) -> None:
        """Reports each name that occurs more than once in `names`, at its last occurrence."""
        for name, times in Counter(names).items():
            if times > 1:
                node = self.find(loc, name, last=True)
                self.report(node, f"the {noun} '{word(node)}' is listed {times} times", "list it once")


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Returns the problems in the order of the file."""
    return tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))


def word(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def pairs(node: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode))


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode):
        return node.value[part] if isinstance(part, int) and part < len(node.value) else None
    return next((value for key, value in pairs(node) if key.value == part), None)


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    for key, value in pairs(node):
        yield key
        yield from _scalars(value)


# Bytes of a file → its tree, or the reason why there is none.

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REFERENCE = re.compile(r"\$\{([^}]*)\}?")
_MAX_DEPTH = 32


def read_bytes(path: Path, source: YamlFile) -> bytes:
    """Returns the file's bytes, or reports a problem and returns b""."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        source.report(None, "no such file", f"create it, or name another {source.noun} file")
    except IsADirectoryError:
        source.report(None, "this is a directory", "name a file in it, e.g. " + str(path / "default.yaml"))
    except OSError as error:
        source.report(None, f"the file can't be read ({(error.strerror or 'error').lower()})", "let this user read it")
    return b""


def parse(data: bytes, source: YamlFile) -> None:
    """Sets `source.root`, or reports why there is none. Does nothing if the file could not be read."""
    if source.problems:
        return
    try:
        text = data.decode("utf-8-sig")
        if _is_too_deep(text, source):
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
        # YAML allows no control characters, and the parsers disagree on how to report their place.
        index = next((i for i, c in enumerate(text) if not c.isprintable() and c not in "\n\r\t"), 0)
        before = text[:index].split("\n")
        source.report_at(len(before) - 1, len(before[-1]), "a control character", "delete it")
        return
    if source.root is None:
        source.report(None, "the file is empty", f"start it with {source.start}")
    elif not isinstance(source.root, yaml.MappingNode):
        source.report(source.root, f"a {source.noun} is a mapping", f"start it with {source.start}")
        source.root = None
    elif alias := _find_repeated(source.root, set()):
        source.report(alias, "an alias ('*') stands for this value", "write the value out in each place")
        source.root = None


def _is_too_deep(text: str, source: YamlFile) -> bool:
    """Reports deep nesting. Composing is recursive in C, so a file that is too deep would crash the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            source.report(event, "nested too deeply", f"flatten it: a {source.noun} is a few levels deep")
            return True
    return False


def _find_repeated(node: yaml.Node, visited: set[int]) -> yaml.Node | None:
    """Returns a node that occurs twice. Aliases can be cyclic or grow without bound, and have only one place."""
    if id(node) in visited:
        return node
    visited.add(id(node))
    children = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
    repeated = (_find_repeated(child, visited) for child in children if isinstance(child, yaml.Node))
    return next(filter(None, repeated), None)


def _report_syntax(error: yaml.MarkedYAMLError, text: str, source: YamlFile) -> None:
    mark = error.problem_mark or error.context_mark
    lines = text.split("\n")
    after = lines[mark.line :] if mark else []
    problem = f"not valid YAML ({error.problem or error.context})"
    if error.context_mark and not any(line.strip() and not line.startswith("#") for line in after):
        mark, remedy = error.context_mark, "the file ends inside it: close it"
    else:
        remedy = _syntax_remedy(after[0] if after else "", mark.column if mark else 0, problem)
    source.report_at(mark.line if mark else 0, mark.column if mark else 0, problem, remedy)


def _syntax_remedy(line: str, column: int, problem: str) -> str:
    reference = _REFERENCE.search(line, max(column - 1, 0))
    if reference and reference.start() <= column:
        return f"""inside {{ }} quote the reference: "{reference.group()}\""""
    if line[column : column + 1] == "\t":
        return "indent with spaces, not with a tab"
    if "another document" in problem or "single document" in problem:
        return "keep one document in the file: remove '---'"
    if "undefined alias" in problem:
        return "define it before with '&', or quote the value if it starts with '*'"
    if "escape character" in problem:
        return "put the value in single quotes: there a backslash is itself"
    return "close every bracket and quote, put a space after ':' and indent alike"


# The tree of a file → plain values.

_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_TAG = "tag:yaml.org,2002:"


def construct(node: yaml.Node, source: YamlFile) -> Value:
    """Returns the tree as plain values, with `${NAME}` references filled in.

    Only `true` and `false` are booleans (NO is a country), and numbers with a fraction stay exact.
    """
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, source)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, source)
    return [construct(item, source) for item in node.value]


def _mapping(node: yaml.MappingNode, source: YamlFile) -> dict[str, Value]:
    values: dict[str, Value] = {}
    lines: dict[str, int] = {}
    for key, child in node.value:
        if not isinstance(key, yaml.ScalarNode):
            source.report(key, "a key must be a word", "replace the list or mapping before ':' by a name")
        elif key.value in values:
            problem = f"the key '{key.value}' stands here twice (first in line {lines[key.value]})"
            source.report(key, problem, "keep one of the two")
        else:
            values[key.value] = construct(child, source)
            lines[key.value] = key.start_mark.line + 1
    return values


def _scalar(node: yaml.ScalarNode, source: YamlFile) -> Value:
    text, kind = str(node.value), node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in ("true", "false"):
        return bool(text.lower() == "true")
    if kind in ("int", "float"):
        return _number(text)
    if kind not in ("str", "bool", "timestamp", "merge", "value"):
        source.report(node, f"the tag {node.tag} is not supported", "remove the tag")
    if source.environ is None or "${" not in text:
        return text
    return _REFERENCE.sub(lambda match: _reference_value(node, match, source, source.environ or {}), text)


def _reference_value(node: yaml.ScalarNode, match: re.Match[str], source: YamlFile, environ: Mapping[str, str]) -> str:
    """Returns the value of a reference, or the reference itself after reporting a problem."""
    name = _NAME.fullmatch(match[1])
    if not name or not match[0].endswith("}"):
        source.report(node, "a reference that can't be read", "write ${NAME} or ${NAME:-default}")
        return match[0]
    value = environ.get(name[1]) or name[2]
    if value is None:
        source.unset = True
        problem = f"the environment variable {name[1]} is not set"
        source.report(node, problem, f"export {name[1]}=…, or give a default: ${{{name[1]}:-…}}")
        return match[0]
    return value


def _number(text: str) -> Value:
    """Parses the source text, as a float would already have lost digits. What is not a decimal number stays text."""
    with suppress(ValueError):
        return int(text)
    with suppress(InvalidOperation):
        if (number := Decimal(text)).is_finite():
            return number
    return text


# Places and remedies in words.


def dotted(loc: Loc) -> str:
    """Joins a place with dots, e.g. `routes.auto.strategy`. List items count from 1."""
    return ".".join(str(part + 1) if isinstance(part, int) else part for part in loc)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns a remedy for an unknown name."""
    names = tuple(known)
    similar = [name for name in names if name.endswith(f"/{word}")] or get_close_matches(word, names, n=1, cutoff=0.6)
    if similar:
        return "did you mean " + " or ".join(f"'{name}'" for name in similar[:4]) + "?"
    return f"use one of {', '.join(names[:12])}" + (", …" if len(names) > 12 else "") if names else "declare one first"


def load_data(beside: str, name: str) -> Any:
    """Loads a YAML table of the project that lies beside the module `beside`."""
    return yaml.load(Path(beside).with_name(name).read_text("utf-8"), yaml.CSafeLoader)
