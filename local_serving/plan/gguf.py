"""The head of a GGUF file: what it says of its model, and the shapes of its tensors. No weights are read.

Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
"""

import struct
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from local_serving.spec import EngineError

_PLAIN = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_KEPT = 1024
"""Longer arrays are vocabularies: only their lengths are kept."""
_LONGEST = 1 << 20


class Head(Struct, frozen=True):
    """`shapes`: of the tensors, by name. `bytes` of the whole file."""

    metadata: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    bytes: int

    @property
    def parameters(self) -> int:
        return sum(map(prod, self.shapes.values()))

    def says(self, key: str, default: Any = None) -> Any:
        """`key` under the name of the architecture, as in "llama.block_count"."""
        return self.metadata.get(f"{self.metadata.get('general.architecture')}.{key}", default)


def read_head(path: Path) -> Head:
    """Raises `EngineError` where it is no GGUF file, or ends too soon."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF" or _number(file, "<I") not in (2, 3):
                raise EngineError(f"{path} is no GGUF file: set `file` to one of version 2 or 3")
            tensors, entries = _number(file, "<Q"), _number(file, "<Q")
            metadata = dict(_entry(file) for _ in range(entries))
            shapes = dict(_tensor(file) for _ in range(tensors))
    except OSError as error:
        raise EngineError(f"{path} can't be read: {error.strerror}: set `file` to a model of your own") from error
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise EngineError(f"{path} is damaged: fetch the file again") from error
    return Head(metadata, shapes, path.stat().st_size)


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _text(file: BinaryIO) -> str:
    length = _number(file, "<Q")
    if length > _LONGEST:
        raise struct.error
    return file.read(length).decode()


def _entry(file: BinaryIO) -> tuple[str, Any]:
    return _text(file), _value(file, _number(file, "<I"))


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    return _array(file) if kind == _ARRAY else _number(file, _PLAIN[kind])


def _array(file: BinaryIO) -> Any:
    """Its values, or its length where it is long."""
    kind, length = _number(file, "<I"), _number(file, "<Q")
    if length <= _KEPT:
        return [_value(file, kind) for _ in range(length)]
    if kind == _STRING:
        for _ in range(length):
            file.seek(_number(file, "<Q"), 1)
    else:
        file.seek(length * struct.calcsize(_PLAIN[kind]), 1)
    return length


def _tensor(file: BinaryIO) -> tuple[str, tuple[int, ...]]:
    name = _text(file)
    shape = tuple(_number(file, "<Q") for _ in range(_number(file, "<I")))
    file.seek(4 + 8, 1)  # its type and its offset
    return name, shape
