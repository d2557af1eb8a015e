"""JSON schemas as Anthropic's structured output takes them.

Objects must be closed, and the keywords below are refused; they move into the description, where the model still reads
them (the anthropic SDK 2.11.0 does the same to the schemas that it sends).
"""

from typing import Any

from adapters.chat import Json

REFUSED = frozenset(
    [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "maxItems",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "prefixItems",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "propertyNames",
        "dependentRequired",
        "not",
        "if",
        "then",
        "else",
    ]
)
FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"])
_NESTED = ("anyOf", "allOf")
_NAMED = ("properties", "$defs", "definitions")


def closed(schema: Any) -> Any:
    """The schema with every object closed, `oneOf` as `anyOf`, and refused keywords as words."""
    if not isinstance(schema, dict):
        return schema
    words = {key: value for key, value in schema.items() if _refused(key, value)}
    kept = {key: _translated(key, value) for key, value in schema.items() if key not in words and key != "oneOf"}
    if "oneOf" in schema:
        kept["anyOf"] = _translated("anyOf", schema["oneOf"])
    if schema.get("type") == "object" or "properties" in schema:
        kept["additionalProperties"] = False
    return {**kept, "description": _described(schema, words)} if words else kept


def _refused(key: str, value: Any) -> bool:
    return key in REFUSED or (key == "format" and value not in FORMATS) or (key == "minItems" and value not in (0, 1))


def _translated(key: str, value: Any) -> Any:
    if key in _NESTED and isinstance(value, list):
        return [closed(part) for part in value]
    if key in _NAMED and isinstance(value, dict):
        return {name: closed(part) for name, part in value.items()}
    return closed(value) if key == "items" else value


def _described(schema: Json, words: Json) -> str:
    rules = ", ".join(f"{key}: {value}" for key, value in words.items())
    return f"{schema.get('description', '')} ({rules})".lstrip()
