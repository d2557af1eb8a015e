"""A YAML tree becomes a `Policy`: every departure from the shape is a problem with a place."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from router.budget.budget import WEBHOOK
from router.config.policy import HEADER_NAME, HEADER_VALUE, LANGUAGE, NAME, URL, VERIFY, Policy
from router.types.price import DATE, HOURS
from router.types.tables import table
from router.types.yaml_file import Loc, YamlFile, construct, did_you_mean, dotted, word

# Tree → Policy: every departure from the shape becomes a problem, and the sound parts are kept.

_NAMED_PARTS = {"sensitivity": 3}
"""Depth of the part that is dropped for a mistake inside it; 2 (a target, a route, a budget) elsewhere."""

_WRONG = table("config/wrong_values.yaml")
_NAMES = {
    NAME: "name",
    URL: "url",
    WEBHOOK: "webhook",
    HEADER_NAME: "header_name",
    HOURS: "hours",
    DATE: "date",
    LANGUAGE: "language",
    VERIFY: "verify",
    HEADER_VALUE: "header_value",
}
_FORMS = {"window": "{rolling: 36h}", "exhausted": "{downgrade: ROUTE}", "outage": "{fail_open_within_usd: 1}"}
"""What may stand in the place of a word."""


def read_policy(root: yaml.Node, source: YamlFile) -> Policy:
    """Drops each part with a mistake from `root` until the rest is sound."""
    while True:
        try:
            return Policy.model_validate(construct(root, source))
        except ValidationError as error:
            # A list whose every entry is wrong is reported as too short besides.
            details = [
                detail
                for detail in error.errors(include_url=False)
                if detail["type"] != "too_short" or detail["ctx"]["actual_length"] >= len(detail["input"])
            ]
        for detail in details:
            _report(source, detail)
        parts = {_smallest(source, detail) for detail in details}
        # What stands last in a list goes first.
        for part in sorted(parts, key=lambda loc: [f"{at:>9}" for at in loc], reverse=True):
            source.drop(part)


def _smallest(source: YamlFile, detail: ErrorDetails) -> Loc:
    """The smallest part whose loss leaves the rest valid: an unknown or optional key, else the named part around it."""
    trail, _ = source.walk(detail["loc"])
    least = _NAMED_PARTS.get(str(detail["loc"][0]), 2)
    if detail["type"] == "extra_forbidden":
        return trail
    for n in range(len(trail), least, -1):
        parent = _schema_at(trail[: n - 1])
        if trail[n - 1] in parent.get("properties", ()) and trail[n - 1] not in parent.get("required", ()):
            return trail[:n]
    return trail[:least]


def _report(source: YamlFile, detail: ErrorDetails) -> None:
    loc, kind = detail["loc"], detail["type"]
    if kind == "extra_forbidden":
        known = tuple(_resolve(_schema_at(loc[:-1])).get("properties", ()))
        problem = f"unknown key '{loc[-1]}' in {_dotted(source, loc[:-1])}"
        source.report(source.key(loc), problem, did_you_mean(str(loc[-1]), known))
    elif kind == "missing":
        source.report(loc, f"the key '{loc[-1]}' is missing in {_dotted(source, loc)}", f"add {loc[-1]}: …")
    elif loc[-1] == "[key]":
        must_be, remedy = _wrong_value(source, detail)
        source.report(source.key(loc[:-1]), f"'{loc[-2]}' can't be {must_be}", remedy)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        kinds = list(_branches(_schema_at(loc)))
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
    kind, context = detail["type"], detail.get("ctx", {})
    if detail["loc"] == ("version",):
        return "1", "write version: 1, the only one that this lowpass reads"
    if detail["loc"][-1] == "inline":
        return "the id of a model, or a model written out", "write it like openai/gpt-5-mini"
    if "unpriced" in (detail["loc"][0], detail["loc"][-1]) and kind in ("literal_error", "model_type"):
        return "refuse, or the rates to charge", "write unpriced: refuse, or {input: 20, output: 100}"
    if kind == "mistake":
        return context["expected"], context["remedy"]
    if kind in ("literal_error", "enum"):
        loc, expected = detail["loc"], str(context["expected"])
        options = [option.strip(" '") for option in expected.replace(" or ", ",").split(",")]
        remedy = did_you_mean(source.text(loc), options)
        form = _FORMS.get(str(source.walk(loc)[0][-1])) if loc[-1] == "word" else None
        return expected, remedy if form is None else f"{remedy}{' Or' if remedy.endswith('?') else ', or'} write {form}"
    name = _NAMES.get(str(context.get("pattern")), "")
    must_be, remedy = _WRONG.get(kind) or _WRONG["patterns"].get(name, ("of another form", "correct it"))
    return must_be.format_map(context), remedy


def _dotted(source: YamlFile, loc: Loc) -> str:
    """The part of `loc` that the file has, e.g. "routes.auto.strategy"; list items count from 1."""
    return dotted(source.walk(loc)[0]) or "the policy"


@cache
def _schema() -> dict[str, Any]:
    return Policy.model_json_schema()


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """Follows references, and the mapping side of "text or a mapping"."""
    if "$ref" in schema:
        return _resolve(_schema()["$defs"][schema["$ref"].rpartition("/")[2]])
    options = schema.get("anyOf", schema.get("oneOf", ())) if "discriminator" not in schema else ()
    objects = [option for option in map(_resolve, options) if option.get("type") == "object"]
    return objects[0] if objects else schema


def _branches(schema: dict[str, Any]) -> dict[str, str]:
    mapping: dict[str, str] = schema.get("discriminator", {}).get("mapping", {})
    return mapping


def _schema_at(loc: Loc) -> dict[str, Any]:
    schema = _resolve(_schema())
    for part in loc:
        if part in _branches(schema):
            schema = _resolve({"$ref": _branches(schema)[str(part)]})
        elif isinstance(part, int):
            schema = _resolve(schema["items"])
        elif part in schema.get("properties", ()):
            schema = _resolve(schema["properties"][part])
        else:  # a mapping's values; of anything else, itself
            values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
            schema = _resolve(next((value for value in values if value), schema))
    return schema


# Names in a policy that refer to something: told where nothing bears them, or where they stand twice.


def check_twice(source: YamlFile, loc: Loc, noun: str, wanted: Sequence[str]) -> None:
    for name, times in Counter(wanted).items():
        if times > 1:
            node = source.find(loc, name, last=True)
            source.report(node, f"the {noun} '{word(node)}' is listed {times} times", "list it once")


def report_unknown(source: YamlFile, loc: Loc, noun: str, name: str, known: Iterable[str]) -> None:
    node = source.find(loc, name)
    text = word(node) or "${…}"
    source.report(node, f"unknown {noun} '{text}'", did_you_mean(text, known))
