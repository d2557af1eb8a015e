"""Manifests and specs as YAML that comes out the same each time."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
import yaml
from msgspec import Struct, structs

from local_serving.spec import EngineSpec

_WIDTH = 1_000_000
"""A flag stays in one line, however long."""


def dumped(*documents: Mapping[str, Any]) -> str:
    """Keys in their order; several documents with `---` between them."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True, explicit_start=len(documents) > 1
    )


def written(spec: EngineSpec) -> str:
    """A spec as its file would have it."""
    return dumped(said(spec))


def said(spec: EngineSpec) -> dict[str, Any]:
    """What its file would say: what is as it is by default is left out."""
    found = _said(spec)
    return {"name": found.pop("name"), "engine": str(spec.__struct_config__.tag), **found}


class _Dumper(yaml.SafeDumper):
    """Without anchors: each manifest can be read, and cut out, by itself. Lists stand in from their keys."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _price(dumper: yaml.SafeDumper, value: Decimal) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", f"{value:f}" if value % 1 else f"{value:.1f}")


_Dumper.add_representer(Decimal, _price)


def _said(part: Struct) -> dict[str, Any]:
    return {
        field.name: _plain(getattr(part, field.name))
        for field in structs.fields(part)
        if getattr(part, field.name) != _default(field)
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return _said(value)
    if isinstance(value, Decimal):
        return value
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return [_plain(one) for one in value]
    return msgspec.to_builtins(value)


def _default(field: structs.FieldInfo) -> Any:
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
