"""A YAML file as a tree in which every value knows its place, and the mistakes found in it so far."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol, TypeAlias

import yaml
from msgspec import Struct

from local_serving.spec.spec import EngineError

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices that lead to a value."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEPTH = 12


class Mark(Protocol):
    """A place in the text; both count from 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class Mistake(Struct, frozen=True):
    """One mistake in a spec, with its place (1-based) and its remedy."""

    file: str
    line: int
    column: int
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.what}: {self.remedy}"


class SpecError(EngineError):
    """Every mistake of a spec, a line each."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


class Document:
    """`file` names it where its mistakes are told."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: yaml.Node | None = None
        self.mistakes: list[Mistake] = []

    def report(self, node: yaml.Node | None, what: str, remedy: str) -> None:
        self.report_mark(node.start_mark if node else None, what, remedy)

    def report_mark(self, mark: Mark | None, what: str, remedy: str) -> None:
        line, column = (mark.line, mark.column) if mark else (0, 0)
        self.mistakes.append(Mistake(self.file, line + 1, column + 1, what, remedy))

    def node(self, place: Place) -> yaml.Node | None:
        """The deepest node on the way to `place`."""
        node = self.root
        for part in place:
            child = _child(node, part)
            if child is None:
                return node
            node = child
        return node

    def failed(self) -> SpecError:
        """The mistakes in the order of the file."""
        return SpecError(sorted(self.mistakes, key=lambda mistake: (mistake.line, mistake.column)))


def parse(path: Path) -> Document:
    """The tree of a file. Raises `SpecError`, with the one reason why there is none."""
    document = Document(str(path))
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if not _too_deep(document, text):
            document.root = yaml.compose(text, Loader=_LOADER)
    except OSError as error:
        document.report(
            None, f"the engine's spec can't be read: {error.strerror}", "name a spec that this user may read"
        )
    except UnicodeDecodeError:
        document.report(None, "this is not UTF-8", "save the file as UTF-8")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"this is not YAML ({error.problem or error.context})"
        document.report_mark(mark, what, "close every bracket and quote, and put a space after ':'")
    except yaml.YAMLError:
        document.report(None, "this is not YAML (a control character)", "delete it")
    if not document.mistakes and not isinstance(document.root, yaml.MappingNode):
        document.report(document.root, "a spec is a mapping", "start it with name: … and engine: vllm")
    if document.mistakes:
        raise document.failed()
    return document


def pairs(node: yaml.MappingNode) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    yield from ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode))


def scalar(node: yaml.Node) -> object:
    """A plain value; what is none, or not of the form that its tag asks for, is its own node: no plain value is one."""
    if not isinstance(node, yaml.ScalarNode):
        return node
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy for a name that nothing bears."""
    names = tuple(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"use one of {', '.join(names)}"


def _too_deep(document: Document, text: str) -> bool:
    """Composing is recursive in C, and an alias may stand for itself."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            document.report_mark(event.start_mark, "an alias ('*')", "write the value out")
        elif depth > _DEPTH:
            document.report_mark(event.start_mark, "nested too deeply", "flatten it")
        if document.mistakes:
            return True
    return False


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        return node.value[part] if part < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in pairs(node) if key.value == part), None)
    return None
