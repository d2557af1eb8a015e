"""docs/errors.md against every place that makes an error, and against the table of failures."""

import ast
from typing import get_args

from router.config.policy import Policy
from router.decide import eligible
from router.errors import TABLE
from tests.docs import ROOT, page, rows

TEXT = page("docs/errors.md")
BY_POLICY = get_args(Policy.model_fields["budget_status"].annotation)


def test_codes() -> None:
    documented = [(int(row["status"]), row["code"]) for row in rows(TEXT, "status", "code", "when")]
    assert len(documented) == len(set(documented))
    assert set(documented) == _raised()


def test_failures() -> None:
    words = {"yes": True, "no": False}
    documented = {
        row["kind"]: (
            words[row["retry"]],
            words[row["fall back"]],
            words[row["trips"]],
            int(row["status"]),
            row["code"],
        )
        for row in rows(TEXT, "kind", "retry")
    }
    rules = {kind: (rule.retry, rule.fall_back, rule.trips, rule.status, rule.code) for kind, rule in TABLE.items()}
    assert documented == {str(kind): rule for kind, rule in rules.items()}


def test_reasons() -> None:
    """In the order of the checks, which decides which one is told."""
    told = [row["reason"] for row in rows(TEXT, "reason")]
    assert told == [*(reason for reason, _ in eligible._CHECKS), "saturated"]


def _raised() -> set[tuple[int, str]]:
    """Every `ClientError(status, code, …)` in the source; a computed status stands for all that it can be."""
    found = {(rule.status, rule.code) for rule in TABLE.values()}
    for path in [*(ROOT / "router").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ClientError":
                found |= _codes(*map(ast.unparse, node.args[:2]))
    return found


def _codes(status: str, code: str) -> set[tuple[int, str]]:
    if (status, code) == ("rule.status", "rule.code"):
        return set()
    computed = {"status": BY_POLICY}
    return {(number, ast.literal_eval(code)) for number in computed.get(status) or (int(status),)}
