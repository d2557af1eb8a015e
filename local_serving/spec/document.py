"""Engine specs as YAML trees with the place of every value; shapes and plain values."""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml
from msgspec import Struct, inspect

from local_serving.spec.spec import NAME, PIECE, SHA256, EngineError, EngineSpec

# A YAML file as a tree in which every value knows its place, and the mistakes found in it so far.

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices that lead to a value."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEPTH = 12


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

    def report(self, place: yaml.Node | yaml.Event | None, what: str, remedy: str) -> None:
        mark = place.start_mark if place else None
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
        what = f"the engine's spec can't be read: {error.strerror}"
        document.report(None, what, "name a spec that this user may read")
    except UnicodeDecodeError:
        document.report(None, "this is not UTF-8", "save the file as UTF-8")
    except yaml.MarkedYAMLError as error:
        where = yaml.Node("", "", error.problem_mark or error.context_mark, None)
        what = f"this is not YAML ({error.problem or error.context})"
        document.report(where, what, "close every bracket and quote, and put a space after ':'")
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
            document.report(event, "an alias ('*')", "write the value out")
        elif depth > _DEPTH:
            document.report(event, "nested too deeply", "flatten it")
        if document.mistakes:
            return True
    return False


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        return node.value[part] if part < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in pairs(node) if key.value == part), None)
    return None


# A plain value of a spec → what its field takes, or what it must be.


class Wrong(NamedTuple):
    """What a value must be, and what to do about it."""

    expected: str
    remedy: str


_PATTERNS = {
    NAME: Wrong("a name", "use small letters, digits and . _ - only, and start with a letter or a digit"),
    PIECE: Wrong("a file in a package", "write it like package_name/folder/file.part00"),
    SHA256: Wrong("a SHA-256", "write its 64 digits as sha256sum does, in quotes"),
}


def plain(node: yaml.Node, kind: inspect.Type) -> Any:
    """The value, or `Wrong`."""
    value = scalar(node)
    match kind:
        case inspect.BoolType():
            return value if isinstance(value, bool) else Wrong("true or false", "write true or false")
        case inspect.IntType():
            whole = isinstance(value, int) and not isinstance(value, bool)
            return _bounded(value, kind) if whole else Wrong("a whole number", "write digits only, e.g. 4096")
        case inspect.FloatType():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return _bounded(value, kind) if number else Wrong("a number", "write it like 0.9")
        case inspect.DecimalType():
            return _price(node)
        case inspect.StrType():
            if not isinstance(value, str):
                return Wrong("text", "put it in quotes")
            return value if not kind.pattern or re.search(kind.pattern, value) else _PATTERNS[kind.pattern]
        case inspect.LiteralType(values=words):
            return _word(value, [str(word) for word in words])
        case inspect.EnumType(cls=enum):
            return _word(value, [str(one.value) for one in enum])
    raise TypeError(kind)


def _bounded(value: Any, kind: inspect.IntType | inspect.FloatType) -> Any:
    if kind.ge is not None and not value >= kind.ge:
        return Wrong(f"at least {kind.ge:g}", "write a larger number")
    if kind.gt is not None and not value > kind.gt:
        return Wrong(f"above {kind.gt:g}", "write a larger number")
    if kind.le is not None and not value <= kind.le:
        return Wrong(f"at most {kind.le:g}", "write a smaller number")
    return value if abs(value) < float("inf") else Wrong("a finite number", "write a smaller number")


def _price(node: yaml.Node) -> Decimal | Wrong:
    """The only decimals of a spec: exact, and never below 0."""
    try:
        value = Decimal(str(node.value))
    except InvalidOperation:
        value = Decimal("NaN")
    return value if value.is_finite() and value >= 0 else Wrong("a price in USD, at least 0", "write it like 2.50")


def _word(value: object, words: list[str]) -> object:
    if value in words:
        return value
    return Wrong(" or ".join(words), did_you_mean(value if isinstance(value, str) else "", words))


# Tree → plain values of the spec's shape: every departure from it is told at its place, and left out.

_MAPPING = Wrong("a mapping", "write 'key: value' pairs")


class Shape:
    """Reads one document. `dropped` are the top-level keys of which something was left out."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.dropped: set[str] = set()

    def values(self) -> dict[str, object] | None:
        """As msgspec converts them; None where it is not known which kind of engine it is."""
        root = self._document.root
        node = self._document.node(("engine",))
        if node is root:
            self._document.report(root, "the key 'engine' is missing", f"add engine: {' | '.join(kinds())}")
            return None
        word = scalar(node) if node else None
        kind = kinds().get(word) if isinstance(word, str) else None
        if kind is None:
            text = word if isinstance(word, str) else "…"
            self._document.report(node, f"unknown engine '{text}'", did_you_mean(text, kinds()))
            return None
        assert isinstance(root, yaml.MappingNode)  # noqa: S101  it has a key
        return self._struct(root, kind, ())

    def _struct(self, node: yaml.MappingNode, kind: inspect.StructType, place: Place) -> dict[str, object]:
        tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
        fields = {field.encode_name: field.type for field in kind.fields}
        known = self._known(node, (*tag, *fields), place)
        for field in kind.fields:
            if field.required and field.encode_name not in known:
                name, where = field.encode_name, f" in {_dotted(place)}" if place else ""
                self._document.report(node, f"the key '{name}' is missing{where}", f"add {name}: …")
                self.dropped.add(str((*place, name)[0]))
        values = self._values({name: (child, fields[name]) for name, child in known.items() if name in fields}, place)
        stand_ins = {field.encode_name: _stand_in(field.type) for field in kind.fields if field.required}
        return stand_ins | tag | values

    def _values(self, children: Mapping[str, tuple[yaml.Node, inspect.Type]], place: Place) -> dict[str, object]:
        found = {name: self._value(child, kind, (*place, name)) for name, (child, kind) in children.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _known(self, node: yaml.MappingNode, names: tuple[str | None, ...], place: Place) -> dict[str, yaml.Node]:
        """The values by their keys; those that nobody knows, and second ones, are told."""
        where, found = _dotted(place) or "the spec", dict[str, yaml.Node]()
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._document.report(key, f"a key of {where} that is no word", "write 'key: value'")
            elif key.value in found:
                self._document.report(key, f"the key '{key.value}' stands twice in {where}", "keep one of them")
            elif key.value in names:
                found[key.value] = child
            else:
                remedy = did_you_mean(str(key.value), filter(None, names))
                self._document.report(key, f"unknown key '{key.value}' in {where}", remedy)
        return found

    def _value(self, node: yaml.Node, kind: inspect.Type, place: Place) -> object:
        """None where it is not of its kind, which is told."""
        found = self._read(node, _branch(node, kind), place)
        if not isinstance(found, Wrong):
            return found
        self.dropped.add(str(place[0]))
        self._document.report(node, f"{_dotted(place)} must be {found.expected}", found.remedy)
        return None

    def _read(self, node: yaml.Node, kind: inspect.Type, place: Place) -> object:
        """Or `Wrong`."""
        match kind:
            case inspect.StructType():
                return self._struct(node, kind, place) if isinstance(node, yaml.MappingNode) else _MAPPING
            case inspect.VarTupleType():
                return self._list(node, kind, place)
            case inspect.DictType(value_type=of):
                if not isinstance(node, yaml.MappingNode):
                    return _MAPPING
                return self._values({str(key.value): (child, of) for key, child in pairs(node)}, place)
        return plain(node, kind)

    def _list(self, node: yaml.Node, kind: inspect.VarTupleType, place: Place) -> list[object] | Wrong:
        if not isinstance(node, yaml.SequenceNode):
            return Wrong("a list", "put it in brackets: [a, b]")
        if len(node.value) < (kind.min_length or 0):
            return Wrong(f"a list of at least {kind.min_length}", "add an entry")
        found = (self._value(child, kind.item_type, (*place, i)) for i, child in enumerate(node.value))
        return [value for value in found if value is not None]


@cache
def kinds() -> Mapping[str, inspect.StructType]:
    """The kinds of engines, by the word for each."""
    union = inspect.type_info(EngineSpec)
    types = union.types if isinstance(union, inspect.UnionType) else ()
    return {str(one.tag): one for one in types if isinstance(one, inspect.StructType)}


def _branch(node: yaml.Node, kind: inspect.Type) -> inspect.Type:
    """Of a union, the member that the value is meant to be; the last, where it is none of them: text is anything."""
    if not isinstance(kind, inspect.UnionType):
        return kind
    members = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
    return next((one for one in members[:-1] if not isinstance(plain(node, one), Wrong)), members[-1])


def _stand_in(kind: inspect.Type) -> object:
    """In the place of what is missing or wrong, so that the rest can be looked through."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.LiteralType(values=words):
            return words[0]
        case inspect.VarTupleType(item_type=item):
            return [_stand_in(item)]
    return "x"


def _dotted(place: Place) -> str:
    """E.g. "parallelism.tensor"; list items count from 1."""
    return ".".join(str(part + 1) if isinstance(part, int) else part for part in place)
