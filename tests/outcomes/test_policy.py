"""What a route says of verifiers and judge: mistakes are told, and docs/outcomes.md has every key and default."""

import re
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from router.api.feedback import FEEDBACK, Feedback
from router.outcomes.checks import mistakes
from router.outcomes.judge.policy import Judge
from router.outcomes.verifiers import Http, Python, Verifier
from router.outcomes.verifiers.http import Promises
from tests.docs import blocks, page, rows
from tests.outcomes.values import verifier
from tests.tables import each_row

TEXT = page("docs/outcomes.md")
KINDS: dict[str, type[BaseModel]] = {
    get_args(each.model_fields["kind"].annotation)[0]: each for each in get_args(get_args(Verifier)[0])
}
COMMON = {"kind", "label", "decides"}
LISTED = {row["kind"]: row for row in rows(TEXT, "kind", "says no where")}


def test_mistakes_of_a_route() -> None:
    judge, plain = Judge(target="judge"), verifier("regex", must="a")
    other = verifier("regex", must="b", label="other")
    assert list(mistakes([verifier("empty"), plain, other], judge, ["plain"])) == list(mistakes([], None, [])) == []
    (twice,) = mistakes([plain, verifier("empty"), plain], None, ["plain"])
    assert (twice.at, twice.remedy) == (("verifiers", 2), "give one of them a label")
    (alone,) = mistakes([], judge, ["judge"])
    assert alone.at == ("judge", "target")


@each_row("more", [{}, {"target": ""}, {"share": 0}, {"share": 1.1}, {"timeout_ms": 0}])
def test_a_judge_that_is_none_is_told(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Judge"):
        Judge.model_validate({"target": "j"} | more if more else {})


def test_every_verifier_is_in_the_document() -> None:
    """With its keys and defaults: a number in brackets is a default."""
    decides = {kind: str(model.model_fields["decides"].default).lower() for kind, model in KINDS.items()}
    assert {kind: row["decides"] for kind, row in LISTED.items()} == decides
    for kind in sorted(set(KINDS) - {"http", "python"}):
        fields = {field.alias or name: field.default for name, field in KINDS[kind].model_fields.items()}
        listed = dict(re.findall(r"(\w+)(?: \(([\d.]+)\))?", LISTED[kind]["keys"]))
        assert listed.keys() == fields.keys() - COMMON, kind
        assert all(float(fields[name]) == float(default) for name, default in listed.items() if default), kind


@each_row("heading, model", [("### http", Http), ("### python", Python), ("## Judge", Judge)])
def test_tables_of_keys(heading: str, model: type[BaseModel]) -> None:
    section = re.split(r"\n##+ ", TEXT.partition(f"\n{heading}\n")[2])[0]
    table = {name: row for row in rows(section, "key", "meaning") for name in row["key"].split(", ")}
    assert table.keys() == model.model_fields.keys() - COMMON
    for name, row in table.items():
        field = model.model_fields[name]
        assert (row["default"] == "required") == field.is_required()
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert float(row["default"].replace(",", "")) == field.default


def test_terms_feedback_and_examples_of_the_document() -> None:
    (terms,) = [row for row in rows(TEXT, "key", "meaning") if row["key"] == "terms"]
    assert all(name in terms["meaning"] for name in Promises.model_fields)
    listed = {name for row in rows(TEXT, "field") for name in row["field"].split(" or ")}
    assert listed == Feedback.model_fields.keys()
    assert f"--scope {FEEDBACK}" in TEXT
    examples: dict[str, Any] = {}
    for block in blocks(TEXT, "yaml"):
        examples |= yaml.safe_load(block)
    assert len([verifier(**each) for each in examples["verifiers"]]) == 4
    assert Judge.model_validate(examples["judge"]).target == "big"
