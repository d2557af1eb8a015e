"""A YAML tree becomes a `Policy`: every departure from the shape is a problem with a place."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from router.budget.budget import WEBHOOK
from router.config.policy import HEADER_NAME, HEADER_VALUE, LANGUAGE, NAME, URL, VERIFY, Policy
from router.config.source import Loc, Source, construct, word
from router.types.price import DATE, HOURS

# Tree → Policy: every departure from the shape becomes a problem, and the sound parts are kept.

_NAMED_PARTS = {"sensitivity": 3}
"""Depth of the part that is dropped for a mistake inside it; 2 (a target, a route, a budget) elsewhere."""

_WHOLE, _NUMBER, _TEXT = "a whole number", "a number", "text"
_TYPES = {
    "int_type": (_WHOLE, "write digits only, e.g. 5000"),
    "int_parsing": (_WHOLE, "write digits only, e.g. 5000"),
    "int_from_float": (_WHOLE, "drop the fraction"),
    "decimal_type": (_NUMBER, "write it like 0.25"),
    "decimal_parsing": (_NUMBER, "write it like 0.25"),
    "finite_number": (_NUMBER, "write a finite number"),
    "float_type": (_NUMBER, "write it like 0.25"),
    "float_parsing": (_NUMBER, "write it like 0.25"),
    "string_type": (_TEXT, "put it in quotes"),
    "bool_type": ("true or false", "write true or false"),
    "bool_parsing": ("true or false", "write true or false"),
    "tuple_type": ("a list", "put it in brackets: [a, b]"),
    "dict_type": ("a mapping", "write 'name: value' pairs below it"),
    "model_type": ("a mapping", "write 'key: value' pairs"),
    "model_attributes_type": ("a mapping", "write 'kind: …' and its other keys"),
}
_BOUNDS = {
    "greater_than": ("above {gt:g}", "write a larger number"),
    "greater_than_equal": ("at least {ge:g}", "write a larger number"),
    "less_than": ("below {lt:g}", "write a smaller number"),
    "less_than_equal": ("at most {le:g}", "write a smaller number"),
    "too_short": ("a list of at least {min_length}", "add an entry"),
    "decimal_max_places": ("a number with at most {decimal_places} decimals", "round it"),
    "string_too_short": ("at least {min_length} character long", "write a name"),
    "string_too_long": ("at most {max_length} characters long", "shorten it"),
}
_PATTERNS = {
    NAME: ("a name", "use letters, digits and . _ : / - only, and start with a letter or a digit"),
    URL: ("a web address", "start it with http:// or https://, without blanks, '?' or '#'"),
    WEBHOOK: ("a web address", "start it with http:// or https://; ASCII, without blanks or '#'"),
    HEADER_NAME: ("the name of an HTTP header", "write it like x-team"),
    HOURS: ("hours of the day", 'write them like "22:30-06:00"'),
    DATE: ("a date", "write it like 2027-01-01"),
    LANGUAGE: ("an ISO 639-1 code", "write a language like en or fr"),
    VERIFY: ("where an answer states its region", 'write it like usage.inference_geo or "header:x-region"'),
    HEADER_VALUE: ("the value of an HTTP header", "use printable ASCII characters only, no line break"),
}
_FORMS = {
    "window": "{rolling: 36h}",
    "exhausted": "{downgrade: ROUTE}",
    "outage": "{fail_open_within_usd: 1}",
}
"""What may stand in the place of a word."""


def read_policy(root: yaml.Node, source: Source, environ: Mapping[str, str]) -> Policy:
    """Drops each part with a mistake from `root` until the rest is sound."""
    while True:
        try:
            return Policy.model_validate(construct(root, source, environ))
        except ValidationError as error:
            details = [detail for detail in error.errors(include_url=False) if not _is_echo(detail)]
        for detail in details:
            _report(source, detail)
        parts = {_smallest(source, detail) for detail in details}
        for part in sorted(parts, key=_last_first, reverse=True):
            source.drop(part)


def _is_echo(detail: ErrorDetails) -> bool:
    """A list whose every entry is wrong is reported as too short besides."""
    return detail["type"] == "too_short" and detail["ctx"]["actual_length"] < len(detail["input"])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy for a name that nothing bears."""
    names = tuple(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"use one of {', '.join(names[:12])}" + (", …" if len(names) > 12 else "") if names else "declare one first"


def _smallest(source: Source, detail: ErrorDetails) -> Loc:
    """The smallest part whose loss leaves the rest valid: an unknown or optional key, else the named part around it."""
    found, _ = source.walk(detail["loc"])
    least = _NAMED_PARTS.get(str(detail["loc"][0]), 2)
    if detail["type"] == "extra_forbidden":
        return found
    return next((found[:n] for n in range(len(found), least, -1) if _optional(found[:n])), found[:least])


def _optional(loc: Loc) -> bool:
    parent = _schema_at(loc[:-1])
    return loc[-1] in parent.get("properties", ()) and loc[-1] not in parent.get("required", ())


def _last_first(loc: Loc) -> tuple[tuple[bool, int, str], ...]:
    return tuple((isinstance(part, int), part if isinstance(part, int) else 0, str(part)) for part in loc)


def _report(source: Source, detail: ErrorDetails) -> None:
    loc, kind = detail["loc"], detail["type"]
    if kind == "extra_forbidden":
        _report_unknown_key(source, loc)
    elif kind == "missing":
        what = f"the key '{loc[-1]}' is missing in {_dotted(source, loc)}"
        source.report(source.node(loc), what, f"add {loc[-1]}: …")
    elif loc[-1] == "[key]":
        what, remedy = _wrong_value(source, detail)
        source.report(source.key(loc[:-1]), f"'{loc[-2]}' can't be {what}", remedy)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        _report_kind(source, detail)
    elif kind == "value_error":
        what, _, remedy = str(detail["ctx"]["error"]).partition(": ")
        source.report(source.node(loc), f"{_dotted(source, loc)}: {what}", remedy)
    else:
        what, remedy = _wrong_value(source, detail)
        source.report(source.node(loc), f"{_dotted(source, loc)} must be {what}", remedy)


def _wrong_value(source: Source, detail: ErrorDetails) -> tuple[str, str]:
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
        return _words(source, detail["loc"], str(context["expected"]))
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in _BOUNDS:
        what, remedy = _BOUNDS[kind]
        return what.format_map(context), remedy
    return _PATTERNS.get(str(context.get("pattern")), ("of another form", "correct it"))


def _words(source: Source, loc: Loc, expected: str) -> tuple[str, str]:
    remedy = _expected_remedy(source.text(loc), expected)
    form = _FORMS.get(str(source.walk(loc)[0][-1])) if loc[-1] == "word" else None
    return expected, remedy if form is None else f"{remedy}{' Or' if remedy.endswith('?') else ', or'} write {form}"


def _expected_remedy(word: str, expected: str) -> str:
    options = [option.strip(" '") for option in expected.replace(" or ", ",").split(",")]
    return did_you_mean(word, options)


def _report_kind(source: Source, detail: ErrorDetails) -> None:
    loc = detail["loc"]
    kinds = [name for name in _branches(_schema_at(loc))]
    word = source.text((*loc, "kind"))
    if detail["type"] == "union_tag_invalid":
        source.report(source.node((*loc, "kind")), f"unknown kind '{word}'", did_you_mean(word, kinds))
    else:
        what = f"the key 'kind' is missing in {_dotted(source, loc)}"
        source.report(source.node(loc), what, f"add kind: {' | '.join(kinds)}")


def _report_unknown_key(source: Source, loc: Loc) -> None:
    parent, key = loc[:-1], str(loc[-1])
    known = tuple(_resolve(_schema_at(parent)).get("properties", ()))
    place = _dotted(source, parent) or "a policy"
    source.report(source.key(loc), f"unknown key '{key}' in {place}", did_you_mean(key, known))


def _dotted(source: Source, loc: Loc) -> str:
    """The part of `loc` that the file has, e.g. "routes.auto.strategy"; list items count from 1."""
    found, _ = source.walk(loc)
    return ".".join(str(part + 1) if isinstance(part, int) else part for part in found) or "the policy"


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
        else:
            schema = _resolve(_entries(schema))
    return schema


def _entries(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping's values; of anything else, itself."""
    values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    return next((value for value in values if value), schema)


# Names in a policy that refer to something: told where nothing bears them, or where they stand twice.


def check_twice(source: Source, loc: Loc, noun: str, wanted: Sequence[str]) -> None:
    for name, times in Counter(wanted).items():
        if times > 1:
            node = source.find(loc, name, last=True)
            source.report(node, f"the {noun} '{word(node)}' is listed {times} times", "list it once")


def report_unknown(source: Source, loc: Loc, noun: str, name: str, known: Iterable[str]) -> None:
    node = source.find(loc, name)
    text = word(node) or "${…}"
    source.report(node, f"unknown {noun} '{text}'", did_you_mean(text, known))
