"""The tree of a policy file → plain values."""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

import yaml

from router.config.source import Source, Value

_REFERENCE = re.compile(r"\$\{([^}]*)\}?")
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
        return self._fill(node) if "${" in text else text

    def _fill(self, node: yaml.ScalarNode) -> str:
        return _REFERENCE.sub(lambda match: self._lookup(node, match), node.value)

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
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return number if number.is_finite() else text
