"""The most trivial instance of a JSON schema, so that structured answers and tool arguments fit what was asked."""

from tests.upstream.ask import Json, record

STRING = "Köln"
_SCALARS: Json = {"string": STRING, "integer": 7, "number": 1.5, "boolean": True, "null": None}


def instance(schema: Json, root: Json | None = None) -> object:
    """A value that satisfies `schema`: every property, one item an array, the first of each alternative."""
    root = root or schema
    if "const" in schema:
        return schema["const"]
    for key in ("enum", "anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        if isinstance(options, list):
            return options[0] if key == "enum" else instance(record(options[0]), root)
    if isinstance(reference := schema.get("$ref"), str):
        return instance(_resolve(reference, root), root)
    return _of_type(schema, root)


def _resolve(reference: str, root: Json) -> Json:
    node = root
    for part in reference.removeprefix("#/").split("/"):
        node = record(node.get(part))
    return node


def _of_type(schema: Json, root: Json) -> object:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()  # Gemini writes types in capitals
    if kind == "object":
        return {name: instance(record(part), root) for name, part in record(schema.get("properties")).items()}
    if kind == "array":
        return [instance(record(schema.get("items")), root)]
    return _SCALARS[kind]
