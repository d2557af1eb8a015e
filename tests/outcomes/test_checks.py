"""Mistakes in what a route says of verifiers and judge."""

import asyncio

import msgspec
import pytest

from router.api.internal import asking
from router.outcomes.checks import mistakes
from router.outcomes.judge.policy import Judge
from router.types.request import Caller, Limits, Request
from router.types.served import Served
from tests.decide.values import candidate
from tests.outcomes.values import verifier

JUDGE = Judge(target="judge")


def test_a_sound_route_has_no_mistakes() -> None:
    own = [verifier("empty"), verifier("regex", must="a"), verifier("regex", must="b", label="other")]
    assert list(mistakes(own, JUDGE, ["plain"])) == []
    assert list(mistakes([], None, [])) == []


def test_names_must_differ() -> None:
    (found,) = mistakes([verifier("regex", must="a"), verifier("empty"), verifier("regex", must="b")], None, ["plain"])
    assert (found.at, found.remedy) == (("verifiers", 2), "give one of them a label")


def test_a_judge_needs_others_to_judge() -> None:
    (found,) = mistakes([], JUDGE, ["judge"])
    assert found.at == ("judge", "target")


@pytest.mark.parametrize(
    "fields",
    [{}, {"target": ""}, {"target": "j", "share": 0}, {"target": "j", "share": 1.1}, {"target": "j", "timeout_ms": 0}],
)
def test_a_judge_that_is_none_is_told(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Judge"):
        Judge.model_validate(fields)


def test_what_the_gateway_asks_of_itself_is_read_as_any_request_is() -> None:
    """All of its text is there to be scanned, and what bound the client's request binds it."""
    heard: list[tuple[Request, Caller]] = []

    async def serve(request: Request, caller: Caller) -> Served:
        heard.append((request, caller))
        body = {"choices": msgspec.Raw(b"[1]")}
        return Served(decision=None, step=candidate("t"), thinking="", body=body)  # type: ignore[arg-type]

    body = b'{"model": "judge", "messages": [{"role": "user", "content": "orchid"}]}'
    limits = Limits(session="s", data_class="secret")

    async def ask() -> bytes:
        return await asking(serve)(body, Caller(id="k"), limits)

    assert asyncio.run(ask()) == b'{"choices":[1]}'
    ((request, caller),) = heard
    assert (request.text, request.model, request.limits, caller.id) == ("orchid", "judge", limits, "k")
