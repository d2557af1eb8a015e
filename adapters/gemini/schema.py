"""JSON schemas as Gemini takes them in `parametersJsonSchema` and `responseJsonSchema`.

Google lists the keywords that it supports and refuses or ignores the rest. `const` becomes an `enum` of one,
`exclusiveMinimum` and `exclusiveMaximum` of an integer the next whole bound, an `allOf` of one its only part. Left out:
`$schema`, `pattern`, `default`, `examples`, `multipleOf`, `uniqueItems`, `minLength`, `maxLength`, `not`, `if`, longer
`allOf`s and everything else that is not in `SUPPORTED`.
"""

from typing import Any

from adapters.chat import Json

SUPPORTED = frozenset(
    [
        "$id",
        "$defs",
        "$ref",
        "$anchor",
        "type",
        "format",
        "title",
        "description",
        "enum",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "anyOf",
        "oneOf",
        "properties",
        "additionalProperties",
        "required",
        "propertyOrdering",
    ]
)
"""GenerationConfig.responseJsonSchema in Google's reference; beside a `$ref` only keywords that begin with "$"."""

_NAMED = ("properties", "$defs")
_LISTS = ("anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")


def cleaned(schema: Any) -> Any:
    """The schema in Gemini's keywords; `definitions` become `$defs`."""
    if not isinstance(schema, dict):
        return schema
    plain = _plain(schema)
    kept = {key: _nested(key, value) for key, value in plain.items() if key in SUPPORTED}
    return {key: value for key, value in kept.items() if key.startswith("$")} if "$ref" in kept else kept


def _plain(schema: Json) -> Json:
    """The same rules in the supported words, where there are any."""
    plain = dict(schema)
    match plain.get("allOf"):
        case [dict(only)]:
            plain = {**only, **plain}
    if "const" in plain:
        plain["enum"] = [plain["const"]]
    if "definitions" in plain:
        plain["$defs"] = plain["definitions"]
    if isinstance(reference := plain.get("$ref"), str):
        plain["$ref"] = reference.replace("#/definitions/", "#/$defs/")
    return {**_bounds(plain), **plain} if plain.get("type") == "integer" else plain


def _bounds(schema: Json) -> Json:
    steps = (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1))
    return {to: schema[key] + step for key, to, step in steps if type(schema.get(key)) is int}


def _nested(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: cleaned(part) for name, part in value.items()}
    if key in _LISTS and isinstance(value, list):
        return [cleaned(part) for part in value]
    return cleaned(value) if key in _SINGLE else value
