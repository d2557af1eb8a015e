"""Converts a YAML tree to a Pydantic model. Every violation of its schema is a problem with a place and a remedy."""

from functools import cache
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from router.types.yaml_file import Loc, Value, YamlFile, construct, did_you_mean, dotted, load_data

_WORDS = load_data(__file__, "yaml_model.yaml")
_FORMS = {pattern: (must_be, remedy) for pattern, must_be, remedy in _WORDS["forms"].values()}


class YamlPart(BaseModel):
    """A mapping of a policy or a spec. Unknown keys in it are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


Part = TypeVar("Part", bound=YamlPart)


def form(name: str) -> StringConstraints:
    """Returns the constraint for a named form of text in `yaml_model.yaml`, which also has its error messages."""
    return StringConstraints(pattern=_WORDS["forms"][name][0])


def read_model(model: type[Part], root: yaml.Node, source: YamlFile) -> Part:
    """Reads the model, dropping each part with a mistake from `root` until the rest is valid.

    A required key of the file itself that is missing or wrong gets the schema's example as its value.
    """
    schema = _schema(model)
    examples: dict[str, Value] = {}
    while True:
        try:
            return model.model_validate(examples | cast("dict[str, Value]", construct(root, source)))
        except ValidationError as error:
            # A list whose entries are all wrong is also reported as too short.
            details = [
                detail
                for detail in error.errors(include_url=False)
                if detail["type"] != "too_short" or detail["ctx"]["actual_length"] >= len(detail["input"])
            ]
        for detail in details:
            _report(schema, source, detail)
        parts = {_removable_part(schema, source, detail) for detail in details}
        # The last items of a list are dropped first.
        for part in sorted(parts, key=lambda loc: [f"{at:>9}" for at in loc], reverse=True):
            source.drop(part)
            if len(part) == 1 and "examples" in (row := schema["properties"].get(part[0], {})):
                examples[str(part[0])] = row["examples"][0]


def _removable_part(schema: dict[str, Any], source: YamlFile, detail: ErrorDetails) -> Loc:
    """Returns the smallest part whose removal leaves the rest valid: an unknown or optional key, or the outermost entry
    of a list or mapping that may be shorter; else the key of the file itself."""
    trail, _ = source.walk(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return trail
    length, inside = 1, False
    for n, part in enumerate(trail, 1):
        parent = _schema_at(schema, trail[: n - 1])
        if part in parent.get("properties", ()):
            is_removable = part not in parent.get("required", ())
        else:
            is_removable, inside = not inside and "minItems" not in parent, True
        length = n if is_removable else length
    return trail[:length] or detail["loc"][:1]


def _report(schema: dict[str, Any], source: YamlFile, detail: ErrorDetails) -> None:
    loc, kind = detail["loc"], detail["type"]
    if kind == "extra_forbidden":
        known = tuple(_schema_at(schema, loc[:-1]).get("properties", ()))
        problem = f"unknown key '{loc[-1]}' in {_dotted(source, loc[:-1])}"
        source.report(source.key(loc), problem, did_you_mean(str(loc[-1]), known))
    elif kind == "missing":
        source.report(loc, f"the key '{loc[-1]}' is missing in {_dotted(source, loc)}", f"add {loc[-1]}: …")
    elif loc[-1] == "[key]":
        must_be, remedy = _wrong_value(source, detail)
        source.report(source.key(loc[:-1]), f"'{loc[-2]}' can't be {must_be}", remedy)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        kinds = list(_branches(_schema_at(schema, loc)))
        word = source.text((*loc, "kind"))
        if kind == "union_tag_invalid":
            source.report((*loc, "kind"), f"unknown kind '{word}'", did_you_mean(word, kinds))
        else:
            source.report(loc, f"the key 'kind' is missing in {_dotted(source, loc)}", f"add kind: {' | '.join(kinds)}")
    elif kind == "value_error":
        problem, _, remedy = str(detail["ctx"]["error"]).partition(": ")
        source.report(loc, f"{_dotted(source, loc)}: {problem}", remedy)
    else:
        must_be, remedy = _wrong_value(source, detail)
        source.report(loc, f"{_dotted(source, loc)} must be {must_be}", remedy)


def _wrong_value(source: YamlFile, detail: ErrorDetails) -> tuple[str, str]:
    """Returns what a value must be, and what to do about it."""
    loc, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    key = str((source.walk(loc)[0] or loc)[-1])
    if kind in ("literal_error", "model_type") and key in _WORDS["keys"]:
        must_be, remedy = _WORDS["keys"][key]
        return must_be, remedy
    if kind == "mistake":
        return context["expected"], context["remedy"]
    if kind in ("literal_error", "enum"):
        expected = str(context["expected"])
        options = [option.strip(" '") for option in expected.replace(" or ", ",").split(",")]
        remedy = did_you_mean(source.text(loc), options)
        if loc[-1] == "word" and key in _WORDS["mappings"]:
            remedy += f"{' Or' if remedy[-1] == '?' else ', or'} write {_WORDS['mappings'][key]}"
        return expected, remedy
    must_be, remedy = _WORDS["kinds"].get(kind) or _FORMS.get(context.get("pattern"), ("of another form", "correct it"))
    return must_be.format_map(context), remedy


def _dotted(source: YamlFile, loc: Loc) -> str:
    """Returns the part of `loc` that exists in the file, e.g. `routes.auto.strategy`. List items count from 1."""
    return dotted(source.walk(loc)[0]) or f"the {source.noun}"


# Places in a model's JSON schema.


@cache
def _schema(model: type[YamlPart]) -> dict[str, Any]:
    return model.model_json_schema()


def _resolve(whole: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follows references, and the mapping side of "text or a mapping"."""
    if "$ref" in schema:
        return _resolve(whole, whole["$defs"][schema["$ref"].rpartition("/")[2]])
    options = schema.get("anyOf", schema.get("oneOf", ())) if "discriminator" not in schema else ()
    objects = [option for row in options if (option := _resolve(whole, row)).get("type") == "object"]
    return objects[0] if objects else schema


def _branches(schema: dict[str, Any]) -> dict[str, str]:
    mapping: dict[str, str] = schema.get("discriminator", {}).get("mapping", {})
    return mapping


def _schema_at(whole: dict[str, Any], loc: Loc) -> dict[str, Any]:
    schema = _resolve(whole, whole)
    for part in loc:
        if part in _branches(schema):
            schema = _resolve(whole, {"$ref": _branches(schema)[str(part)]})
        elif isinstance(part, int):
            schema = _resolve(whole, schema["items"])
        elif part in schema.get("properties", ()):
            schema = _resolve(whole, schema["properties"][part])
        else:  # values of a mapping; anything else stays as it is
            values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
            schema = _resolve(whole, next((value for value in values if value), schema))
    return schema
