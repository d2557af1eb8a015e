"""What the egress filter lets out, with real bytes over a real socket: whatever a plan says, and whoever made it."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from router.classify.classify import LARGE
from router.decide.eligibility import ClassGuard, Gate, Redact, Requirements, Scan
from router.decide.health import Health
from router.dispatch.dispatch import DispatchJob
from router.dispatch.egress import EgressDenied, OutboundRequest
from router.dispatch.http import HttpTransport
from router.dispatch.stream import WholeAnswer
from router.dispatch.tactics import run_plan
from router.errors import UpstreamFailure
from router.types.clock import now_ms
from router.types.request import Limits, Redacted, Request
from router.types.target import Target, Terms
from tests.decide.values import gate
from tests.dispatch.values import ANSWER, asking, at, at_home, dispatcher, job, with_transport
from tests.gateway.canned import Canned, canned
from tests.tables import data, each_row

CLASSES = {
    "open": Requirements(),
    "harmless": Requirements(),
    "european": Requirements(regions=("eu",)),
    "hidden": Requirements(local_only=True, redact=Redact.NEEDED),
    "barred": Requirements(block=True),
}
WORDS = {"harmless": b"daisy", "european": b"Cologne", "hidden": b"orchid", "barred": b"nightshade"}


def find(body: bytes, *_: object) -> frozenset[str]:
    return frozenset(name for name, word in WORDS.items() if word in body)


def under(asked: Request, *classes: str, scan: Scan = find, redacted: Redacted | None = None) -> Gate:
    """A request that was thought to have these classes."""
    own = gate(asked=asked, redacted=redacted)
    seen = replace(own.classification, classes=frozenset({"open", *classes}))
    return Gate(asked, own.caller, seen, ClassGuard(CLASSES, scan), redacted, now_ms(), own.resting, own.thinks_within)


def plain(text: str, *classes: str, to: tuple[Target, ...], scan: Scan = find, **limits: Any) -> DispatchJob:
    asked = asking(text, limits=Limits(**limits))
    return job(*to, asked=asked, own=under(asked, *classes, scan=scan))


def carried(task: DispatchJob) -> WholeAnswer:
    async def walk(transport: HttpTransport) -> Any:
        return await run_plan(dispatcher(transport, Health(lambda: 0.0)), task)

    answer = with_transport(walk)
    assert isinstance(answer, WholeAnswer)
    return answer


def stays_in(server: Canned, task: DispatchJob) -> str:
    """The refusal's message; nothing has arrived, and nothing was charged."""
    with pytest.raises(EgressDenied) as refused:
        carried(task)
    assert server.asked == []
    assert task.budget.attempts == []
    assert (refused.value.status, refused.value.code) == (403, "no_eligible_target")
    return refused.value.message


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned({"m": (200, ANSWER)}) as server:
        yield server


def places(server: Canned, *regions: str, **fields: Any) -> tuple[Target, ...]:
    return tuple(at(f"{server.url}/m/v1", identity=region or "t", region=region, **fields) for region in regions)


def concealed(server: Canned, left: str, *classes: str, place: str = "us", redacted: bool = True) -> DispatchJob:
    """A request about an orchid, of which `left` is still there once it is redacted."""
    asked, rest = asking("an orchid"), frozenset({"open", *classes})
    own = under(asked, "hidden", redacted=Redacted(asking(left), rest, {"[FLOWER_1]": "orchid"}) if redacted else None)
    return job(*places(server, place), asked=asked, own=own, hidden={place})


@each_row("name, text, known, regions, wish, outcome", data(__file__, "places.yaml"))
def test_bytes_go_where_their_classes_and_their_caller_allow_it(
    server: Canned, name: str, text: str, known: list[str], regions: list[str], wish: str, outcome: list[Any] | str
) -> None:
    """A refusal names the class, and says nothing of the value."""
    server.clear()
    to = tuple(at_home(place) if place.id == "home" else place for place in places(server, *regions))
    task = plain(text, *known, to=to, region=wish)
    if isinstance(outcome, str):
        message = stays_in(server, task)
        assert outcome in message
        assert not any(word.decode() in message for word in WORDS.values())
    else:
        answer = carried(task)
        assert (answer.record.step.target.id, set(answer.attempt.classes)) == (outcome[0], {"open", *outcome[1]})
        assert server.asked == ["m"]


def test_a_scan_that_fails_lets_nothing_out(server: Canned) -> None:
    def broken(body: bytes, *_: object) -> frozenset[str]:
        raise ValueError(body)

    assert "Hi" not in stays_in(server, plain("Hi", to=places(server, "us"), scan=broken))


def test_evidence_that_has_expired_since_the_decision_serves_no_request(server: Canned) -> None:
    terms = Terms(expires_ms=now_ms() - 1, evidence="a contract")
    stays_in(server, plain("Hi", to=places(server, "eu", terms=terms)))


def test_a_failure_is_told_before_a_refusal(server: Canned) -> None:
    """The attempt was made, and the client hears of it."""
    server.answers["m"] = (500, b"{}")
    task = plain("in Cologne", to=places(server, "us", "eu"))
    with pytest.raises(UpstreamFailure):
        carried(task)
    assert [attempt.target.id for attempt in task.budget.attempts] == ["eu"]


def test_a_request_goes_out_redacted_where_it_may_not_as_it_is(server: Canned) -> None:
    attempt = carried(concealed(server, "a [FLOWER_1]")).attempt
    assert attempt.redacted
    assert attempt.classes == {"open"}


@each_row("left, classes, redacted", data(__file__, "redacted_wrongly.yaml"))
def test_a_redacted_request_is_judged_as_it_is(server: Canned, left: str, classes: list[str], redacted: bool) -> None:
    stays_in(server, concealed(server, left, *classes, redacted=redacted))


def test_a_class_that_must_be_redacted_and_is_found_whole_stays_in(server: Canned) -> None:
    """This target may see it, but only with placeholders."""
    guard = ClassGuard(CLASSES | {"hidden": Requirements(redact=Redact.REMOTE)}, find)
    task = concealed(server, "an orchid")
    stays_in(server, replace(task, gate=replace(task.gate, guard=guard)))


def test_a_huge_body_is_scanned_beside_the_event_loop(server: Canned) -> None:
    """The loop has other clients; what is found there binds all the same."""
    scans, own = list[tuple[bool, bool]](), threading.get_ident()

    def noting(body: bytes, *_: object) -> frozenset[str]:
        scans.append((len(body) > LARGE, threading.get_ident() == own))
        return find(body)

    us, huge = places(server, "us"), "x" * LARGE
    carried(plain("x", to=us, scan=noting))
    carried(plain(huge, to=us, scan=noting))
    server.clear()
    stays_in(server, plain(huge + "Cologne", to=us, scan=noting))
    assert scans == [(False, True), (True, False), (True, False)]


def test_a_client_that_leaves_while_the_bytes_are_looked_at_pays_nothing(server: Canned) -> None:
    looking, leave = threading.Event(), threading.Event()

    def slow(body: bytes, *_: object) -> frozenset[str]:
        looking.set()
        leave.wait(60)
        return frozenset()

    task = plain("x" * LARGE, to=places(server, "us"), scan=slow)

    async def hang_up(transport: HttpTransport) -> None:
        walk = asyncio.ensure_future(run_plan(dispatcher(transport, Health(lambda: 0.0)), task))
        await asyncio.to_thread(looking.wait, 60)
        walk.cancel()
        await asyncio.wait([walk])
        leave.set()

    with_transport(hang_up)
    (attempt,) = task.budget.attempts
    assert (attempt.outcome, attempt.usage, attempt.classes) == ("client_gone", None, frozenset())
    assert server.asked == []


def test_a_parcel_shows_nothing_of_its_contents(server: Canned) -> None:
    task = plain("in Cologne", to=places(server, "eu"))
    request: Any = msgspec.json.encode({"text": "in Cologne"})
    place = task.plan.steps[0].target
    assert "Cologne" not in repr(OutboundRequest(task.gate.guard, place, request, frozenset({"Cologne"})))


def test_the_log_names_target_and_classes_of_a_refusal(server: Canned, caplog: pytest.LogCaptureFixture) -> None:
    stays_in(server, plain("in Cologne", to=places(server, "us"), region="Cologne"))
    assert caplog.messages == ["stopped by the egress filter: ['european', 'open'] for us"]
