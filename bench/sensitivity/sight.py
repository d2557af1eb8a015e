"""A policy with every detector there is, and what it sees in a request that came over the wire."""

from collections.abc import Collection, Sequence
from typing import Any, get_args

import msgspec
from pydantic import ValidationError

from router.api.parse import parse
from router.classify.sensitivity import Detector
from router.config.policy import Sensitivity
from router.screen import Screen
from router.types.request import Caller, Endpoint, Finding, Request
from router.types.target import Secret

CLASSES = ("internal", "pii", "phi", "pci", "source_code", "secret", "export")
DEEP = ("names", "local_llm", "second_opinion")
"""Kinds of the deep tier: measured apart."""
CLASS_OF = {
    "secrets": "secret",
    "cards": "pci",
    "health": "phi",
    "medical": "phi",
    "source_code": "source_code",
    "source": "source_code",
    "code": "source_code",
    "markings": "export",
    "keywords": "export",
    "patterns": "internal",
}
"""All others find what is personal."""
NEEDS: dict[str, dict[str, Any]] = {
    "keywords": {"words": ["Project Halcyon", "Falkenberg GmbH"]},
    "patterns": {"patterns": {"ticket": "HALC-[0-9]{5}"}},
}
"""What a kind can't do without: words that are nowhere in the sets."""
CALLER = Caller()


class Sight:
    """`absent`: kinds that could not be had, and why. Counts in how many requests a detector failed."""

    def __init__(self, screen: Screen, kinds: tuple[str, ...], absent: dict[str, str]) -> None:
        self.screen, self.kinds, self.absent = screen, kinds, absent
        self.asked = self.failed = 0

    def findings(self, body: dict[str, Any], read: Sequence[Finding] | None = ()) -> tuple[Finding, ...]:
        """None where a detector failed: such a request has every class, but nobody saw anything."""
        seen = self.screen.alone(request(body), CALLER, read=read).classification
        self.asked += 1
        self.failed += any(cause.by == "detector_failed" for cause in seen.causes)
        return seen.findings


def known() -> tuple[str, ...]:
    """The kinds that a policy may name."""
    union = get_args(Detector)[0]
    models = get_args(union) or (union,)
    return tuple(kind for model in models for kind in get_args(model.model_fields["kind"].annotation))


def sight(kinds: Collection[str]) -> Sight:
    rows, absent = [], {}
    for kind in kinds:
        row = {"kind": kind, "class": CLASS_OF.get(kind, "pii"), **NEEDS.get(kind, {})}
        try:
            _sensitivity([row])
        except ValidationError as error:
            absent[kind] = f"the policy refuses it: {error.errors()[0]['msg']}"
        else:
            rows.append(row)
    found = _sensitivity(rows)
    return Sight(Screen(found, Secret("bench")), tuple(row["kind"] for row in rows), absent)


def fast() -> Sight:
    """Every detector of the fast tier."""
    return sight([kind for kind in known() if kind not in DEEP])


def _sensitivity(rows: Sequence[dict[str, Any]]) -> Sensitivity:
    return Sensitivity.model_validate({"classes": {name: {} for name in CLASSES}, "detectors": rows})


def request(body: dict[str, Any]) -> Request:
    """As the gateway reads it."""
    return parse(Endpoint.CHAT, "0" * 32, msgspec.json.encode({"model": "auto", **body}), ())


def said(text: str, role: str = "user") -> dict[str, Any]:
    """A chat of one message."""
    return {"messages": [{"role": role, "content": text}]}


CONTENT = ("messages", 0, "content")
"""The path of its text."""
