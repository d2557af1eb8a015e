"""The strings of a JSON value, each with the place to put another."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from router.types.request import Path

_TEXTUAL = b'"[{'


class Slot(NamedTuple):
    """`path` as in `Passage`: that of a key ends with the key itself, so it is that of its value too."""

    path: Path
    text: str
    container: Any
    is_key: bool = False

    def __repr__(self) -> str:
        return f"Slot({len(self.path)} deep)"

    @property
    def field(self) -> object:
        """The name that the text stands under, also as a member of a list."""
        return next((part for part in reversed(self.path) if isinstance(part, str)), "")


def tree(body: Mapping[str, Raw], leave: Iterable[str] = ()) -> dict[str, Any]:
    """The fields that may hold text, decoded, but for those to `leave`."""
    return {
        field: msgspec.json.decode(raw)
        for field, raw in body.items()
        if field not in leave and memoryview(raw)[0] in _TEXTUAL
    }


def slots(root: dict[str, Any]) -> Iterator[Slot]:
    """In no particular order. The keys of `root` itself are the API's own."""
    waiting: list[tuple[Path, Any]] = [((), root)]
    while waiting:
        path, container = waiting.pop()
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            place = (*path, key)
            if isinstance(key, str) and path:
                yield Slot(place, key, container, is_key=True)
            if isinstance(value, str):
                yield Slot(place, value, container)
            elif isinstance(value, dict | list):
                waiting.append((place, value))


def put(changes: Iterable[tuple[Slot, str]]) -> frozenset[str]:
    """Writes the new texts in place; returns the fields of the root in which something changed."""
    renamed: dict[int, tuple[Any, dict[str, str]]] = {}
    touched = set()
    for slot, text in changes:
        touched.add(str(slot.path[0]))
        if slot.is_key:
            renamed.setdefault(id(slot.container), (slot.container, {}))[1][slot.text] = text
        else:
            slot.container[slot.path[-1]] = text
    for container, names in renamed.values():
        items = [(names.get(key, key), value) for key, value in container.items()]
        container.clear()
        container.update(items)
    return frozenset(touched)


def encoded(body: Mapping[str, Raw], root: Mapping[str, Any], touched: Iterable[str]) -> dict[str, Raw]:
    """`body` with its touched fields as they are in `root`; all other bytes stay."""
    return {**body, **{field: Raw(msgspec.json.encode(root[field])) for field in touched}}
