"""Tree → plain values of the spec's shape: every departure from it is told at its place, and left out."""

from collections.abc import Mapping
from functools import cache

import yaml
from msgspec import inspect

from local_serving.spec.document import Document, Place, did_you_mean, pairs, scalar
from local_serving.spec.plain import Wrong, plain
from local_serving.spec.spec import EngineSpec

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
                self._report_missing(node, (*place, field.encode_name))
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

    def _report_missing(self, node: yaml.Node, place: Place) -> None:
        where = f" in {_dotted(place[:-1])}" if place[1:] else ""
        self._document.report(node, f"the key '{place[-1]}' is missing{where}", f"add {place[-1]}: …")
        self.dropped.add(str(place[0]))

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
