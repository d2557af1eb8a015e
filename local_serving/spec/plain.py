"""A plain value of a spec → what its field takes, or what it must be."""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import yaml
from msgspec import inspect

from local_serving.spec.document import did_you_mean, scalar
from local_serving.spec.spec import NAME, PIECE, SHA256


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
            return _text(value, kind.pattern)
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


def _text(value: object, pattern: str | None) -> str | Wrong:
    if not isinstance(value, str):
        return Wrong("text", "put it in quotes")
    return value if not pattern or re.search(pattern, value) else _PATTERNS[pattern]


def _word(value: object, words: list[str]) -> object:
    if value in words:
        return value
    return Wrong(" or ".join(words), did_you_mean(value if isinstance(value, str) else "", words))
