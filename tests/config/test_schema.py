"""The committed JSON schema is the one that the code has."""

import re

from router.config.schema import schema_text
from tests.config import FOLDER

POLICIES = FOLDER.parents[1] / "policies"


def test_schema_is_current() -> None:
    remedy = "run: python -m router.config.schema > policies/schema.json"
    assert (POLICIES / "schema.json").read_text("utf-8") == schema_text(), remedy


def test_policies_name_the_schema_for_editors() -> None:
    for policy in POLICIES.rglob("*.yaml"):
        first = policy.read_text("utf-8").splitlines()[0]
        named = re.fullmatch(r"# yaml-language-server: \$schema=(.+)", first)
        assert named, policy
        assert (policy.parent / named[1]).resolve() == POLICIES / "schema.json"
