"""docs/outcomes.md has every verifier, every key and every default; its examples are sound."""

import re
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from router.api.feedback import FEEDBACK, Feedback
from router.outcomes.judge.policy import Judge
from router.outcomes.verifiers import Http, Python, Verifier
from router.outcomes.verifiers.http import Promises
from tests.docs import blocks, page, rows
from tests.outcomes.values import verifier

TEXT = page("docs/outcomes.md")
KINDS: dict[str, type[BaseModel]] = {
    get_args(each.model_fields["kind"].annotation)[0]: each for each in get_args(get_args(Verifier)[0])
}
COMMON = {"kind", "label", "decides"}
LISTED = {row["kind"]: row for row in rows(TEXT, "kind", "says no where")}


def test_every_verifier_is_there() -> None:
    assert LISTED.keys() == KINDS.keys()
    for kind, row in LISTED.items():
        assert row["decides"] == str(KINDS[kind].model_fields["decides"].default).lower()


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"http", "python"}))
def test_keys_and_defaults(kind: str) -> None:
    """A number in brackets is a default."""
    fields = {field.alias or name: field.default for name, field in KINDS[kind].model_fields.items()}
    told = dict(re.findall(r"(\w+)(?: \(([\d.]+)\))?", LISTED[kind]["keys"]))
    assert told.keys() == fields.keys() - COMMON
    assert all(float(fields[name]) == float(default) for name, default in told.items() if default)


@pytest.mark.parametrize(("heading", "model"), [("### http", Http), ("### python", Python), ("## Judge", Judge)])
def test_tables_of_keys(heading: str, model: type[BaseModel]) -> None:
    section = re.split(r"\n##+ ", TEXT.partition(f"\n{heading}\n")[2])[0]
    table = {name: row for row in rows(section, "key", "meaning") for name in row["key"].split(", ")}
    assert table.keys() == model.model_fields.keys() - COMMON
    for name, row in table.items():
        field = model.model_fields[name]
        assert (row["default"] == "required") == field.is_required()
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert float(row["default"].replace(",", "")) == field.default


def test_terms() -> None:
    (row,) = [row for row in rows(TEXT, "key", "meaning") if row["key"] == "terms"]
    assert all(name in row["meaning"] for name in Promises.model_fields)


def test_fields_of_feedback() -> None:
    listed = {name for row in rows(TEXT, "field") for name in row["field"].split(" or ")}
    assert listed == Feedback.model_fields.keys()
    assert f"--scope {FEEDBACK}" in TEXT


def test_examples() -> None:
    found: dict[str, Any] = {}
    for block in blocks(TEXT, "yaml"):
        found |= yaml.safe_load(block)
    assert len([verifier(**each) for each in found["verifiers"]]) == 4
    assert Judge.model_validate(found["judge"]).target == "big"
