"""What a request is said to hold: whatever is found, declared, remembered, or can't be looked at."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from router.api.parse import parse
from router.classify.deep.names import Named
from router.classify.deep.process import Reader, Unread
from router.classify.detector import Doubt
from router.config.policy import Sensitivity
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import SqliteLedger
from router.screen import Screen, Screened, Sources
from router.sessions.sqlite import SqliteSessions
from router.types.journal import LedgerUnavailable
from router.types.request import Caller, Endpoint, Modality, Request
from router.types.secret import Secret
from router.types.session import SessionStore, Taint
from router.types.store import StoreUnavailable

T = TypeVar("T")
MAIL = "ada@lovelace.example.org"
KEY = "AKIA" + "QYLPMN5HHHF7NVXA"
CLASSES: dict[str, dict[str, Any]] = {
    "public": {},
    "internal": {},
    "pii": {"redact": "needed"},
    "secret": {"block": True},
}
DETECTORS = [{"kind": "identifiers", "class": "pii"}, {"kind": "secrets", "class": "secret"}]
ANYONE = Caller()


def screen(*more: dict[str, Any], **fields: Any) -> Screen:
    policy = {"classes": CLASSES, "detectors": [*DETECTORS, *more]} | fields
    return Screen(Sensitivity.model_validate(policy), Secret("of the test"))


def asked(text: str, *, identifier: str = "r", session: str = "", data_class: str = "", **body: Any) -> Request:
    fields = {"model": "auto", "messages": [{"role": "user", "content": text}], **body}
    given = {"session": session, "data-class": data_class}
    headers = [(b"x-lowpass-" + name.encode(), value.encode()) for name, value in given.items() if value]
    return parse(Endpoint.CHAT, identifier, msgspec.json.encode(fields), headers)


def classes(seen: Screened) -> set[str]:
    return set(seen.classification.classes)


SECOND = {"kind": "local_llm", "target": "local"}
TICKET = "ticket 0171 2345678"
DENIED = frozenset({Doubt("identifiers.phone", "pii", "0171 2345678")})


def in_sessions(home: Path, work: Callable[[SessionStore], Awaitable[T]]) -> T:
    async def run() -> T:
        path = home / "lowpass.db"
        SqliteLedger(path).migrate()
        journal = SqliteJournal(path)
        try:
            return await work(SqliteSessions(journal))
        finally:
            await journal.end()

    return asyncio.run(run())


def sources(sessions: SessionStore, reader: Reader | None = None) -> Sources:
    return Sources(sessions, reader or Reader(), Secret("of the test"))


@pytest.mark.parametrize(
    ("request_", "caller", "expected", "by"),
    [
        (asked("hello"), ANYONE, {"internal"}, {"default"}),
        (asked(f"mail {MAIL}"), ANYONE, {"internal", "pii"}, {"default", "identifiers.email"}),
        (asked("hello", data_class="pii"), ANYONE, {"internal", "pii"}, {"default", "header"}),
        (asked("hello", data_class="public"), ANYONE, {"internal", "public"}, {"default", "header"}),
        (asked("hello"), Caller(min_class="pii"), {"internal", "pii"}, {"default", "key"}),
        (asked("hello"), Caller(min_class="gone"), set(CLASSES), {"default", "key"}),
    ],
)
def test_every_class_that_was_seen_is_there(
    request_: Request, caller: Caller, expected: set[str], by: set[str]
) -> None:
    seen = screen().alone(request_, caller)
    assert classes(seen) == expected
    assert {cause.by for cause in seen.classification.causes} == by


@pytest.mark.parametrize("modality", Modality)
def test_what_can_not_be_read_has_the_class_that_the_policy_gives_it(modality: Modality) -> None:
    request = msgspec.structs.replace(asked("hello"), unscannable=frozenset({modality}))
    seen = screen(unscannable={modality.value: "pii"}).alone(request, ANYONE)
    assert classes(seen) == {"internal", "pii"}
    assert seen.redacted is not None
    assert "pii" in seen.redacted.classes
    assert classes(screen().alone(request, ANYONE)) == {"internal"}


def test_a_session_keeps_what_it_has_seen_and_another_one_does_not(tmp_path: Path) -> None:
    async def work(sessions: SessionStore) -> None:
        one, found = screen(), sources(sessions)
        await one.look(asked(f"mail {MAIL}", session="s"), ANYONE, found)
        assert classes(await one.look(asked("hello", session="s"), ANYONE, found)) == {"internal", "pii"}
        assert classes(await one.look(asked("hello", session="t"), ANYONE, found)) == {"internal"}
        assert classes(await one.look(asked("hello", session="s"), Caller(id="other"), found)) == {"internal"}
        assert classes(await one.look(asked("hello"), ANYONE, found)) == {"internal"}

    in_sessions(tmp_path, work)


def test_what_was_found_is_redacted_in_later_turns_too_but_what_was_declared_stays(tmp_path: Path) -> None:
    async def work(sessions: SessionStore) -> None:
        one, found = screen(), sources(sessions)
        await one.look(asked(f"mail {MAIL}", session="found"), ANYONE, found)
        later = await one.look(asked("hello", session="found"), ANYONE, found)
        assert later.redacted is not None
        assert later.redacted.classes == {"internal"}
        await one.look(asked("hello", session="declared", data_class="pii"), ANYONE, found)
        later = await one.look(asked("hello", session="declared"), ANYONE, found)
        assert later.redacted is not None
        assert later.redacted.classes == {"internal", "pii"}

    in_sessions(tmp_path, work)


def test_a_class_that_the_policy_has_no_more_is_every_class(tmp_path: Path) -> None:
    async def work(sessions: SessionStore) -> None:
        found = sources(sessions)
        await screen().look(asked(f"mail {MAIL}", session="s"), ANYONE, found)
        fewer = Screen(Sensitivity.model_validate({"classes": {"internal": {}, "top": {}}}), Secret("of the test"))
        assert classes(await fewer.look(asked("hello", session="s"), ANYONE, found)) == {"internal", "top"}

    in_sessions(tmp_path, work)


class Gone:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.told: list[Taint] = []

    async def taint(self, session: str) -> Taint:
        raise self.error

    async def add(self, session: str, taint: Taint) -> None:
        self.told.append(taint)
        raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), LedgerUnavailable("gone")])
def test_a_session_of_which_nothing_is_known_has_every_class(error: Exception) -> None:
    gone = Gone(error)
    seen = asyncio.run(screen().look(asked("hello", session="s"), ANYONE, sources(gone)))
    assert gone.told == []
    mail = asyncio.run(screen().look(asked(f"mail {MAIL}", session="s"), ANYONE, sources(gone)))
    assert gone.told == [Taint(found=frozenset({"pii"}))]
    assert classes(mail) == set(CLASSES)
    assert classes(seen) == set(CLASSES)
    assert seen.redacted is not None
    assert seen.redacted.classes == set(CLASSES)


def test_values_give_way_to_placeholders_and_the_class_with_them() -> None:
    seen = screen().alone(asked(f"mail {MAIL} now"), ANYONE)
    assert seen.redacted is not None
    assert seen.redacted.classes == {"internal"}
    assert MAIL.encode() not in seen.redacted.request.raw
    assert list(seen.redacted.values.values()) == [MAIL]
    assert MAIL not in repr(seen.redacted)


@pytest.mark.parametrize(
    "hidden", [base64.b64encode(f"mail to {MAIL} please".encode()).decode(), f"{KEY} and {MAIL}"], ids=["base64", "key"]
)
def test_what_can_not_be_replaced_keeps_its_class(hidden: str) -> None:
    seen = screen().alone(asked(f"see {hidden}"), ANYONE)
    assert seen.redacted is not None
    assert classes(seen) - {"internal"} & seen.redacted.classes
    assert not seen.redacted.classes <= {"internal"}


def test_no_class_that_may_be_redacted_means_no_redaction() -> None:
    assert screen().alone(asked(f"the key {KEY}"), ANYONE).redacted is None


def test_what_stands_beside_a_value_is_not_redacted_away_with_it() -> None:
    """Health is seen only beside a person; where it may not be redacted it stays when the person goes."""
    several = {**CLASSES, "phi": {}}
    health = {"kind": "health", "class": "phi"}
    seen = screen(health, classes=several).alone(asked(f"diabetes, treated with metformin: {MAIL}"), ANYONE)
    assert classes(seen) == {"internal", "pii", "phi"}
    assert seen.redacted is not None
    assert seen.redacted.classes == {"internal", "phi"}


def placeholders(session: str, identifier: str = "r", caller: Caller = ANYONE) -> set[str]:
    seen = screen().alone(asked(f"mail {MAIL}", session=session, identifier=identifier), caller)
    assert seen.redacted is not None
    return set(seen.redacted.values)


def test_a_value_has_one_placeholder_in_a_session_and_another_one_elsewhere() -> None:
    assert placeholders("s", "r1") == placeholders("s", "r2")
    assert placeholders("s") != placeholders("t")
    assert placeholders("", "r1") != placeholders("", "r2")
    assert placeholders("s") != placeholders("s", caller=Caller(id="other"))


NAMES = {"kind": "names", "class": "pii", "only": ["person"]}


def test_names_are_read_where_the_policy_asks(tmp_path: Path) -> None:
    async def work(sessions: SessionStore) -> None:
        reader = Reader()
        try:
            seen = await screen(NAMES).look(asked("please call Ada Lovelace"), ANYONE, sources(sessions, reader))
        finally:
            await reader.close()
        assert classes(seen) == {"internal", "pii"}
        assert seen.redacted is not None
        assert b"Lovelace" not in seen.redacted.request.raw
        assert seen.redacted.classes == {"internal"}

    in_sessions(tmp_path, work)


class Silent(Reader):
    async def read(self, texts: Sequence[str], timeout_ms: int) -> list[list[Named]]:
        raise Unread("the names were not read in time")


def test_names_that_were_not_read_give_every_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(sessions: SessionStore) -> None:
        seen = await screen(NAMES).look(asked("the canary Ada Lovelace"), ANYONE, sources(sessions, Silent()))
        assert classes(seen) == set(CLASSES)
        assert seen.redacted is not None
        assert seen.redacted.classes == set(CLASSES)

    in_sessions(tmp_path, work)
    assert "every class" in caplog.text
    assert "canary" not in caplog.text


def test_what_is_too_long_to_be_read_is_not_redacted_away(tmp_path: Path) -> None:
    async def work(sessions: SessionStore) -> None:
        one = screen({**NAMES, "most_chars": 10})
        seen = await one.look(asked("longer than ten characters"), ANYONE, sources(sessions))
        assert classes(seen) == {"internal", "pii"}
        assert seen.redacted is not None
        assert "pii" in seen.redacted.classes

    in_sessions(tmp_path, work)


def test_a_large_body_is_looked_at_as_a_small_one_is(tmp_path: Path) -> None:
    async def work(sessions: SessionStore) -> None:
        seen = await screen().look(asked("word " * 60_000 + MAIL), ANYONE, sources(sessions))
        assert classes(seen) == {"internal", "pii"}

    in_sessions(tmp_path, work)


def test_what_is_only_possible_counts_where_somebody_could_have_denied_it() -> None:
    request = asked(TICKET)
    assert classes(screen().alone(request, ANYONE)) == {"internal"}
    seen = screen(SECOND).alone(request, ANYONE)
    assert classes(seen) == {"internal", "pii"}
    assert seen.classification.possible == seen.classification.findings
    assert classes(screen(SECOND).alone(request, ANYONE, denied=DENIED)) == {"internal"}


def test_only_what_nothing_else_gives_is_to_be_asked_about() -> None:
    seen = screen(SECOND).alone(asked(f"{TICKET}, mail {MAIL}"), ANYONE)
    assert classes(seen) == {"internal", "pii"}
    assert seen.classification.possible == ()
    assert {one.detector for one in seen.classification.findings} == {"identifiers.phone", "identifiers.email"}
    assert screen(SECOND).alone(asked(TICKET, data_class="pii"), ANYONE).classification.possible == ()


def test_what_is_possible_is_redacted_like_all_that_is_found() -> None:
    for text in (TICKET, f"{TICKET}, mail {MAIL}"):
        seen = screen(SECOND).alone(asked(text), ANYONE)
        assert seen.redacted is not None
        assert seen.redacted.classes == {"internal"}
        assert "0171" not in seen.redacted.request.text


def test_what_was_denied_keeps_no_redacted_request_in() -> None:
    seen = screen(SECOND).alone(asked(f"{TICKET}, mail {MAIL}"), ANYONE, denied=DENIED)
    assert seen.redacted is not None
    assert seen.redacted.classes == {"internal"}
    assert "0171 2345678" in seen.redacted.request.text
    assert MAIL not in seen.redacted.request.text


def test_a_possible_person_beside_an_illness_is_health() -> None:
    more = ({"kind": "health", "class": "phi"}, SECOND)
    rules = screen(*more, classes=CLASSES | {"phi": {}})
    request = asked(f"{TICKET}: has type 2 diabetes")
    assert classes(rules.alone(request, ANYONE)) == {"internal", "pii", "phi"}
    assert classes(rules.alone(request, ANYONE, denied=DENIED)) == {"internal"}


def test_nobody_to_ask_is_no_no(tmp_path: Path) -> None:
    async def work(sessions: SessionStore) -> None:
        assert classes(await screen(SECOND).look(asked(TICKET), ANYONE, sources(sessions))) == {"internal", "pii"}

    in_sessions(tmp_path, work)
