"""A column of values in few bytes; whatever they are, they come back the same."""

import re
import zlib
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.types.journal import Value

Numbers = NDArray[np.int64]
FEW = 256
"""Distinct values that one byte tells apart."""
_LEVEL = 6
"""zlib's usual: level 9 takes twice as long for 3 % less."""
_EXACT = 10**15
"""A float tells so many decimals apart, and is written as the shortest of them."""
_MOST_DIGITS = 15
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class Same(Struct, frozen=True, array_like=True, tag=0):
    """One value, over and over."""

    length: int
    value: str | int | float | None


class Ints(Struct, frozen=True, array_like=True, tag=1):
    """Distances from `low`, a plane a byte, the lowest first; one that is as long as the column is not deflated.
    With `first`: differences from one to the next."""

    length: int
    low: int
    planes: list[bytes]
    first: int | None = None


class Labels(Struct, frozen=True, array_like=True, tag=2):
    """Distinct values as deflated JSON, and which of them each is."""

    labels: bytes
    codes: Ints | Same


class Text(Struct, frozen=True, array_like=True, tag=3):
    """Deflated JSON."""

    values: bytes


class Decimals(Struct, frozen=True, array_like=True, tag=4):
    """Texts of numbers without an exponent, and without zeros at their end: times 10 to the power of `digits`.
    `point`: whole ones end in ".0"."""

    digits: int
    point: bool
    numbers: Ints | Same


class Hex(Struct, frozen=True, array_like=True, tag=5):
    """Texts of as many hexadecimal digits each: a plane a byte."""

    length: int
    planes: list[bytes]


class Floats(Struct, frozen=True, array_like=True, tag=6):
    texts: Same | Labels | Text | Decimals | Hex


class Sparse(Struct, frozen=True, array_like=True, tag=7):
    """`present`: deflated bits; the values are of those that are there."""

    length: int
    present: bytes
    values: Same | Ints | Labels | Text | Decimals | Hex | Floats


Texts = Same | Labels | Text | Decimals | Hex
Column = Same | Ints | Labels | Text | Decimals | Hex | Floats | Sparse


def encoded(values: Sequence[Value]) -> Column:
    """Raises TypeError for bytes."""
    present = [value for value in values if value is not None]
    if not present:
        return Same(len(values), None)
    if len(present) < len(values):
        bits = np.packbits(np.array([value is not None for value in values]))
        return Sparse(len(values), deflated(bits.tobytes()), _present(present))
    return _present(present)


def decoded(column: Column) -> list[Value]:
    if isinstance(column, Sparse):
        bits = np.unpackbits(np.frombuffer(inflated(column.present), np.uint8), count=column.length)
        values = iter(_values(column.values))
        return [next(values) if bit else None for bit in bits.tolist()]
    return _values(column)


def ints(values: Numbers) -> Ints | Same:
    low, high = int(values.min()), int(values.max())
    if low == high:
        return Same(len(values), low)
    # Differences of what lies far apart may go around, and come back the same way.
    steps = np.diff(values)
    least = int(steps.min())
    if _width(int(steps.max()) - least) < _width(high - low):
        return Ints(len(values), least, _planes(steps, least), int(values[0]))
    return Ints(len(values), low, _planes(values, low))


def numbers(column: Ints | Same) -> Numbers:
    if isinstance(column, Same):
        assert isinstance(column.value, int)  # noqa: S101
        return np.full(column.length, column.value, np.int64)
    if column.first is None:
        return _joined(column.planes, column.length, column.low)
    values = np.empty(column.length, np.int64)
    values[0], values[1:] = column.first, _joined(column.planes, column.length - 1, column.low)
    return values.cumsum()


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def inflated(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=-zlib.MAX_WBITS)


def _present(values: Sequence[Value]) -> Same | Ints | Labels | Text | Decimals | Hex | Floats:
    kinds = set(map(type, values))
    if kinds == {str}:
        return texts([value for value in values if isinstance(value, str)])
    if kinds == {float}:
        return Floats(texts([repr(value) for value in values]))
    if kinds != {int}:
        return Text(deflated(msgspec.json.encode(values)))
    whole = [value for value in values if isinstance(value, int)]
    return _few(whole) or ints(np.array(whole, np.int64))


def texts(values: Sequence[str]) -> Texts:
    return _few(values) or _hex(values) or _decimals(values) or Text(deflated(msgspec.json.encode(values)))


def _few(values: Sequence[str] | Sequence[int]) -> Same | Labels | None:
    distinct: dict[str | int, int] = {}
    codes = [distinct.setdefault(value, len(distinct)) for value in values]
    if len(distinct) == 1:
        return Same(len(values), values[0])
    if len(distinct) > min(FEW, len(values) // 4):
        return None
    return Labels(deflated(msgspec.json.encode(list(distinct))), ints(np.array(codes, np.int64)))


def _hex(values: Sequence[str]) -> Hex | None:
    """Only what is long enough to be an id: of short ones something else says more."""
    width = len(values[0])
    if width < 2 * 8 or width % 2 or any(len(value) != width for value in values):
        return None
    joined = "".join(values)
    try:
        data = bytes.fromhex(joined)
    except ValueError:
        return None
    if data.hex() != joined:
        return None
    table = np.frombuffer(data, np.uint8).reshape(len(values), width // 2)
    return Hex(len(values), [_plane(plane.tobytes()) for plane in table.T])


def _decimals(values: Sequence[str]) -> Decimals | None:
    if not all(map(_DECIMAL.fullmatch, values)):
        return None
    parts = [value.partition(".") for value in values]
    digits = max(len(fraction) for _, _, fraction in parts)
    if max(len(whole) for whole, _, _ in parts) + digits > _MOST_DIGITS:
        return None
    found = [int(whole + fraction.ljust(digits, "0")) for whole, _, fraction in parts]
    for point in (False, True):
        if _written(found, digits, point) == list(values):
            return Decimals(digits, point, ints(np.array(found, np.int64)))
    return None


def _written(values: Sequence[int], digits: int, point: bool) -> list[str]:
    if not digits:
        return [f"{value}.0" if point else str(value) for value in values]
    unit, end = 10**digits, ".0" if point else ""
    if max(map(abs, values), default=0) >= _EXACT:
        return [_decimal(value, unit, digits, end) for value in values]
    # The quickest way to write most of them.
    texts = [repr(value / unit) for value in values]
    return [
        _decimal(value, unit, digits, end) if text[-2:] == ".0" or "e" in text else text
        for value, text in zip(values, texts, strict=True)
    ]


def _decimal(value: int, unit: int, digits: int, end: str) -> str:
    whole, fraction = divmod(abs(value), unit)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}." + f"{fraction:0{digits}d}".rstrip("0") if fraction else f"{sign}{whole}{end}"


def _values(column: Column) -> list[Value]:
    match column:
        case Same():
            return [column.value] * column.length
        case Ints():
            return list(numbers(column).tolist())
        case Labels():
            labels = msgspec.json.decode(inflated(column.labels), type=list[str | int])
            return [labels[code] for code in numbers(column.codes).tolist()]
        case Text():
            return list(msgspec.json.decode(inflated(column.values), type=list[str | int | float]))
        case Decimals():
            return list(_written(numbers(column.numbers).tolist(), column.digits, column.point))
        case Hex():
            table = np.array([_bytes(plane, column.length) for plane in column.planes]).T
            return [row.tobytes().hex() for row in table]
        case Floats():
            return [float(str(text)) for text in _values(column.texts)]
        case Sparse():
            return decoded(column)


def _width(spread: int) -> int:
    """Bytes that it takes."""
    return (spread.bit_length() + 7) // 8


def _planes(values: Numbers, low: int) -> list[bytes]:
    above = values.view(np.uint64) - np.array(low, np.int64).view(np.uint64)
    table = above.astype("<u8").view(np.uint8).reshape(len(values), 8)
    return [_plane(table[:, at].tobytes()) for at in range(_width(int(above.max())))]


def _plane(data: bytes) -> bytes:
    smaller = deflated(data)
    return smaller if len(smaller) < len(data) else data


def _bytes(plane: bytes, length: int) -> NDArray[np.uint8]:
    return np.frombuffer(plane if len(plane) == length else inflated(plane), np.uint8)


def _joined(planes: list[bytes], length: int, low: int) -> Numbers:
    table = np.zeros((length, 8), np.uint8)
    for at, plane in enumerate(planes):
        table[:, at] = _bytes(plane, length)
    return table.view("<u8").reshape(length).astype(np.int64) + low
