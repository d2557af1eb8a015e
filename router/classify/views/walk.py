"""Every string in a JSON value, with its path."""

from collections.abc import Iterator
from typing import Any

from router.types.request import Passage, Path


def strings(value: Any, path: Path = (), *, keys: bool = True) -> Iterator[Passage]:
    """In the order of the document; a key's passage ends with the key itself, its value's follows.

    Their role is that of the nearest object around with one. Depth is bounded by the parser of the JSON.
    """
    waiting: list[tuple[Path, Any, str, bool]] = [(path, value, "", False)]
    while waiting:
        place, one, by, named = waiting.pop()
        if named:
            yield Passage(place, str(place[-1]), by)
        if isinstance(one, str):
            yield Passage(place, one, by)
        elif isinstance(one, dict):
            own = one.get("role")
            by = own if isinstance(own, str) else by
            waiting += [((*place, key), item, by, keys) for key, item in reversed(one.items())]
        elif isinstance(one, list):
            waiting += [((*place, number), one[number], by, False) for number in range(len(one) - 1, -1, -1)]
