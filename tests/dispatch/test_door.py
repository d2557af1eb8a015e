"""What the door lets out, with real bytes over a real socket: whatever a plan says, and whoever made it."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from router.decide.eligible import Gate
from router.decide.guard import ClassGuard, Scan
from router.decide.health import Health
from router.decide.requirements import Redact, Requirements
from router.dispatch.door import LARGE, KeptIn
from router.dispatch.errand import Errand
from router.dispatch.http import HttpTransport
from router.dispatch.opened import Answered
from router.errors import UpstreamFailure
from router.types.clock import now_ms
from router.types.redacted import Redacted
from router.types.request import Limits
from router.types.target import Target, Terms
from tests.decide.values import LOCAL, gate
from tests.dispatch.values import ANSWER, asking, at, dispatcher, errand, with_transport
from tests.gateway.canned import Canned, canned

CLASSES = {
    "open": Requirements(),
    "harmless": Requirements(),
    "european": Requirements(regions=("eu",)),
    "hidden": Requirements(local_only=True, redact=Redact.NEEDED),
    "barred": Requirements(block=True),
}
WORDS = {"harmless": b"daisy", "european": b"Cologne", "hidden": b"orchid", "barred": b"nightshade"}


def find(body: bytes) -> frozenset[str]:
    return frozenset(name for name, word in WORDS.items() if word in body)


def under(asked: Any, *classes: str, scan: Scan = find, redacted: Redacted | None = None) -> Gate:
    """A request that was thought to have these classes."""
    own = gate(asked=asked, redacted=redacted)
    seen = replace(own.classification, classes=frozenset({"open", *classes}))
    return Gate(asked, own.caller, seen, ClassGuard(CLASSES, scan), redacted, now_ms(), own.resting, own.thinks_within)


def plain(text: str, *classes: str, places: tuple[Target, ...], scan: Scan = find, **limits: Any) -> Errand:
    asked = asking(text, limits=Limits(**limits))
    return errand(*places, asked=asked, own=under(asked, *classes, scan=scan))


def carried(what: Errand) -> Answered:
    async def walk(transport: HttpTransport) -> Any:
        return await dispatcher(transport, Health(lambda: 0.0)).walk(what)

    answer = with_transport(walk)
    assert isinstance(answer, Answered)
    return answer


def stays_in(server: Canned, what: Errand) -> str:
    """The refusal's message; nothing has arrived, and nothing was charged."""
    with pytest.raises(KeptIn) as refused:
        carried(what)
    assert server.asked == []
    assert what.purse.attempts == []
    assert (refused.value.status, refused.value.code) == (403, "no_eligible_target")
    return refused.value.message


@pytest.fixture
def server() -> Any:
    with canned({"m": (200, ANSWER)}) as server:
        yield server


def places(server: Canned, *regions: str, **fields: Any) -> tuple[Target, ...]:
    return tuple(at(f"{server.url}/m/v1", identity=region or "t", region=region, **fields) for region in regions)


def at_home(server: Canned) -> Target:
    (place,) = places(server, "")
    return replace(place, id="home", provider=replace(LOCAL, base_url=place.base_url))


@pytest.mark.parametrize("known", [("european",), ("european", "harmless")])
def test_a_plan_that_names_a_forbidden_target_is_not_carried_out(server: Canned, known: tuple[str, ...]) -> None:
    message = stays_in(server, plain("Hi", *known, places=places(server, "us")))
    assert message.startswith("us: ")


@pytest.mark.parametrize(
    ("text", "told"), [("in Cologne", "european"), ("an orchid", "hidden"), ("some nightshade", "barred")]
)
def test_what_nobody_had_seen_is_found_in_the_bytes(server: Canned, text: str, told: str) -> None:
    """The refusal names the class, and says nothing of the value."""
    message = stays_in(server, plain(text, places=places(server, "us")))
    assert told in message
    assert WORDS[told].decode() not in message


def test_what_is_found_and_allowed_there_goes_out_and_is_written_down(server: Canned) -> None:
    answer = carried(plain("a daisy in Cologne", places=places(server, "eu")))
    assert answer.attempt.classes == {"open", "harmless", "european"}
    assert server.asked == ["m"]


def test_every_class_that_is_found_binds_together_with_those_that_were_known(server: Canned) -> None:
    what = plain("an orchid", "european", places=(at_home(server),))
    assert carried(what).attempt.classes == {"open", "hidden", "european"}
    server.asked.clear()
    assert "barred" in stays_in(server, plain("some nightshade", "european", places=(at_home(server),)))


def test_a_scan_that_fails_lets_nothing_out(server: Canned) -> None:
    def broken(body: bytes) -> frozenset[str]:
        raise ValueError(body)

    assert "Hi" not in stays_in(server, plain("Hi", places=places(server, "us"), scan=broken))


def test_the_caller_s_own_wish_for_a_region_holds(server: Canned) -> None:
    assert "us" in stays_in(server, plain("Hi", places=places(server, "us"), region="eu"))
    assert carried(plain("Hi", places=places(server, "eu"), region="eu")).attempt.outcome == "ok"


def test_evidence_that_has_expired_since_the_decision_serves_nobody(server: Canned) -> None:
    stale = places(server, "eu", terms=Terms(expires_ms=now_ms() - 1, evidence="a contract"))
    stays_in(server, plain("Hi", places=stale))


def test_a_target_behind_a_forbidden_one_is_asked_instead(server: Canned) -> None:
    answer = carried(plain("in Cologne", places=places(server, "us", "eu")))
    assert answer.step.target.id == "eu"
    assert server.asked == ["m"]


def test_a_failure_is_told_before_a_refusal(server: Canned) -> None:
    """The attempt was made, and the client hears of it."""
    server.answers["m"] = (500, b"{}")
    what = plain("in Cologne", places=places(server, "us", "eu"))
    with pytest.raises(UpstreamFailure):
        carried(what)
    assert [attempt.target.id for attempt in what.purse.attempts] == ["eu"]


def concealed(server: Canned, left: str, *classes: str, place: str = "us", redacted: bool = True) -> Errand:
    """A request about an orchid, of which `left` is still there once it is redacted."""
    asked, rest = asking("an orchid"), frozenset({"open", *classes})
    hidden = Redacted(asking(left), rest, {"[FLOWER_1]": "orchid"})
    own = under(asked, "hidden", redacted=hidden if redacted else None)
    return errand(*places(server, place), asked=asked, own=own, redacted=True)


def test_a_request_goes_out_redacted_where_it_may_not_as_it_is(server: Canned) -> None:
    answer = carried(concealed(server, "a [FLOWER_1]"))
    assert answer.attempt.classes == {"open"}
    assert answer.attempt.redacted


@pytest.mark.parametrize(
    ("left", "classes", "place"),
    [
        ("a [FLOWER_1] or an orchid", (), "us"),  # the redactor missed one
        ("a [FLOWER_1]", ("european",), "us"),  # what is left may not go there
        ("a [FLOWER_1] in Cologne", (), "us"),  # nor what nobody had seen
    ],
)
def test_what_redaction_leaves_is_judged_as_it_is(server: Canned, left: str, classes: tuple[str], place: str) -> None:
    stays_in(server, concealed(server, left, *classes, place=place))


def test_a_step_that_only_says_that_it_is_redacted_is_not(server: Canned) -> None:
    """A careless planner: there is no redacted form of the request."""
    stays_in(server, concealed(server, "", redacted=False))


def test_what_must_be_redacted_and_is_found_whole_stays_in(server: Canned) -> None:
    """A class that may be seen by this target, but only with placeholders."""
    classes = CLASSES | {"hidden": Requirements(redact=Redact.REMOTE)}
    what = concealed(server, "an orchid")
    own = replace(what.gate, guard=ClassGuard(classes, find))
    stays_in(server, replace(what, gate=own))


def test_a_huge_body_is_scanned_beside_the_event_loop(server: Canned) -> None:
    """The loop has other clients; what is found there binds all the same."""
    seen: list[tuple[int, int]] = []

    def noting(body: bytes) -> frozenset[str]:
        seen.append((len(body), threading.get_ident()))
        return find(body)

    huge = "x" * LARGE
    carried(plain("x", places=places(server, "us"), scan=noting))
    carried(plain(huge, places=places(server, "us"), scan=noting))
    server.asked.clear()
    stays_in(server, plain(huge + "Cologne", places=places(server, "us"), scan=noting))
    own = threading.get_ident()
    assert [(size > LARGE, thread == own) for size, thread in seen] == [(False, True), (True, False), (True, False)]


def test_who_leaves_while_the_bytes_are_looked_at_pays_nothing(server: Canned) -> None:
    looking, leave = threading.Event(), threading.Event()

    def slow(body: bytes) -> frozenset[str]:
        looking.set()
        leave.wait(5)
        return frozenset()

    what = plain("x" * LARGE, places=places(server, "us"), scan=slow)

    async def hang_up(transport: HttpTransport) -> None:
        task = asyncio.ensure_future(dispatcher(transport, Health(lambda: 0.0)).walk(what))
        await asyncio.to_thread(looking.wait, 5)
        task.cancel()
        await asyncio.wait([task])
        leave.set()

    with_transport(hang_up)
    (attempt,) = what.purse.attempts
    assert (attempt.outcome, attempt.usage, attempt.classes) == ("client_gone", None, frozenset())
    assert server.asked == []


def test_a_parcel_shows_nothing_of_what_it_holds(server: Canned) -> None:
    what = plain("in Cologne", places=places(server, "eu"))
    (step,) = what.plan.steps
    request: Any = msgspec.json.encode({"text": "in Cologne"})
    assert "Cologne" not in repr(what.parcel(step, request))


def test_the_log_says_who_was_kept_from_what(server: Canned, caplog: pytest.LogCaptureFixture) -> None:
    stays_in(server, plain("in Cologne", places=places(server, "us"), region="Cologne"))
    assert caplog.messages == ["kept in at the door: ['european', 'open'] for us"]
