"""The classes of a request: of what is found, declared, remembered, or can not be read; and what redaction leaves."""

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.api.parse import parse
from router.classify.deep import process
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
from tests.classify.looking import KEY, MAIL
from tests.tables import each_row

CLASSES: dict[str, dict[str, Any]] = {
    "public": {},
    "internal": {},
    "pii": {"redact": "needed"},
    "secret": {"block": True},
}
DETECTORS = [{"kind": "identifiers", "class": "pii"}, {"kind": "secrets", "class": "secret"}]
HEALTH, CLASSES_OF_HEALTH = {"kind": "health", "class": "phi"}, CLASSES | {"phi": {}}
NAMES = {"kind": "names", "class": "pii", "only": ["person"], "timeout_ms": 600_000}
SECOND = {"kind": "local_llm", "target": "local"}
TICKET = "ticket 0171 2345678"
DENIED = frozenset({Doubt("identifiers.phone", "pii", "0171 2345678")})
ANYONE, OTHER = Caller(), Caller(id="other")


def screen(*more: dict[str, Any], **fields: Any) -> Screen:
    policy = {"classes": CLASSES, "detectors": [*DETECTORS, *more]} | fields
    return Screen(Sensitivity.model_validate(policy), Secret("of the test"))


PLAIN, ASKING = screen(), screen(SECOND)


def asked(text: str, *, identifier: str = "r", session: str = "", data_class: str = "", **body: Any) -> Request:
    fields = {"model": "auto", "messages": [{"role": "user", "content": text}], **body}
    given = {"session": session, "data-class": data_class}
    headers = [(b"x-lowpass-" + name.encode(), value.encode()) for name, value in given.items() if value]
    return parse(Endpoint.CHAT, identifier, msgspec.json.encode(fields), headers)


def classes(seen: Screened) -> set[str]:
    return set(seen.classification.classes)


def left(seen: Screened) -> set[str]:
    """The classes of the redacted request."""
    assert seen.redacted is not None
    return set(seen.redacted.classes)


def redacted_text(seen: Screened) -> str:
    assert seen.redacted is not None
    return seen.redacted.request.text


Turn = tuple[Screen, Request, Caller]


def turn(text: str, rules: Screen = PLAIN, *, caller: Caller = ANYONE, **headers: str) -> Turn:
    return rules, asked(text, **headers), caller


def look(where: Path | SessionStore, *turns: Turn, reader: type[Reader] = Reader) -> list[Screened]:
    """What each turn holds, one after the other, with the sessions of a ledger in a folder or those of a store."""

    async def run() -> list[Screened]:
        if not isinstance(where, Path):
            return await screened(where)
        SqliteLedger(where / "lowpass.db").migrate()
        journal = SqliteJournal(where / "lowpass.db")
        try:
            return await screened(SqliteSessions(journal))
        finally:
            await journal.end()

    async def screened(sessions: SessionStore) -> list[Screened]:
        sources = Sources(sessions, reader(), Secret("of the test"))
        try:
            return [await rules.look(request, caller, sources) for rules, request, caller in turns]
        finally:
            await sources.reader.close()

    return asyncio.run(run())


CAUSES: list[tuple[Request, Caller, set[str], set[str]]] = [
    (asked("hello"), ANYONE, {"internal"}, {"default"}),
    (asked(f"mail {MAIL}"), ANYONE, {"internal", "pii"}, {"default", "identifiers.email"}),
    (asked("hello", data_class="pii"), ANYONE, {"internal", "pii"}, {"default", "header"}),
    (asked("hello", data_class="public"), ANYONE, {"internal", "public"}, {"default", "header"}),
    (asked("hello"), Caller(min_class="pii"), {"internal", "pii"}, {"default", "key"}),
    (asked("hello"), Caller(min_class="gone"), set(CLASSES), {"default", "key"}),
]


@each_row("request_, caller, expected, by", CAUSES)
def test_every_class_that_was_seen_is_there(
    request_: Request, caller: Caller, expected: set[str], by: set[str]
) -> None:
    seen = PLAIN.alone(request_, caller)
    assert classes(seen) == expected
    assert {cause.by for cause in seen.classification.causes} == by


@each_row("modality", Modality)
def test_what_can_not_be_read_has_the_class_that_the_policy_gives_it(modality: Modality) -> None:
    request = msgspec.structs.replace(asked("hello"), unscannable=frozenset({modality}))
    seen = screen(unscannable={modality.value: "pii"}).alone(request, ANYONE)
    assert classes(seen) == {"internal", "pii"}
    assert "pii" in left(seen)
    assert classes(PLAIN.alone(request, ANYONE)) == {"internal"}


def test_a_session_keeps_what_it_has_seen_and_another_one_does_not(tmp_path: Path) -> None:
    mail, same, other = turn(f"mail {MAIL}", session="s"), turn("hello", session="s"), turn("hello", session="t")
    seen = look(tmp_path, mail, same, other, turn("hello", session="s", caller=OTHER), turn("hello"))
    assert [classes(one) for one in seen[1:]] == [{"internal", "pii"}, {"internal"}, {"internal"}, {"internal"}]


def test_what_was_found_is_redacted_in_later_turns_too_but_what_was_declared_stays(tmp_path: Path) -> None:
    found = turn(f"mail {MAIL}", session="found"), turn("hello", session="found")
    declared = turn("hello", session="declared", data_class="pii"), turn("hello", session="declared")
    _, after_found, _, after_declared = look(tmp_path, *found, *declared)
    assert left(after_found) == {"internal"}
    assert left(after_declared) == {"internal", "pii"}


def test_a_class_that_the_policy_has_no_more_is_every_class(tmp_path: Path) -> None:
    fewer = Screen(Sensitivity.model_validate({"classes": {"internal": {}, "top": {}}}), Secret("of the test"))
    _, seen = look(tmp_path, turn(f"mail {MAIL}", session="s"), turn("hello", fewer, session="s"))
    assert classes(seen) == {"internal", "top"}


class Gone:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.added: list[Taint] = []

    async def taint(self, session: str) -> Taint:
        raise self.error

    async def add(self, session: str, taint: Taint) -> None:
        self.added.append(taint)
        raise self.error


@each_row("error", [StoreUnavailable("gone"), LedgerUnavailable("gone")])
def test_a_session_of_which_nothing_is_known_has_every_class(error: Exception) -> None:
    gone = Gone(error)
    (seen,) = look(gone, turn("hello", session="s"))
    assert gone.added == []
    assert classes(seen) == left(seen) == set(CLASSES)
    (mail,) = look(gone, turn(f"mail {MAIL}", session="s"))
    assert gone.added == [Taint(found=frozenset({"pii"}))]
    assert classes(mail) == set(CLASSES)


def test_values_give_way_to_placeholders_and_the_class_with_them() -> None:
    seen = PLAIN.alone(asked(f"mail {MAIL} now"), ANYONE)
    assert left(seen) == {"internal"}
    assert seen.redacted is not None
    assert MAIL.encode() not in seen.redacted.request.raw
    assert list(seen.redacted.values.values()) == [MAIL]
    assert MAIL not in repr(seen.redacted)


@each_row("hidden", [base64.b64encode(f"mail to {MAIL} please".encode()).decode(), f"{KEY} and {MAIL}"])
def test_what_can_not_be_replaced_keeps_its_class(hidden: str) -> None:
    seen = PLAIN.alone(asked(f"see {hidden}"), ANYONE)
    assert (classes(seen) & left(seen)) - {"internal"}


def test_no_class_that_may_be_redacted_means_no_redaction() -> None:
    assert PLAIN.alone(asked(f"the key {KEY}"), ANYONE).redacted is None


def test_what_stands_beside_a_value_is_not_redacted_away_with_it() -> None:
    """Health is seen only beside a person; where it may not be redacted it stays when the person goes."""
    rules = screen(HEALTH, classes=CLASSES_OF_HEALTH)
    seen = rules.alone(asked(f"diabetes, treated with metformin: {MAIL}"), ANYONE)
    assert classes(seen) == {"internal", "pii", "phi"}
    assert left(seen) == {"internal", "phi"}


def placeholders(session: str, identifier: str = "r", caller: Caller = ANYONE) -> set[str]:
    seen = PLAIN.alone(asked(f"mail {MAIL}", session=session, identifier=identifier), caller)
    assert seen.redacted is not None
    return set(seen.redacted.values)


def test_a_value_has_one_placeholder_in_a_session_and_another_one_elsewhere() -> None:
    assert placeholders("s", "r1") == placeholders("s", "r2")
    assert placeholders("s") != placeholders("t")
    assert placeholders("", "r1") != placeholders("", "r2")
    assert placeholders("s") != placeholders("s", caller=OTHER)


def test_names_are_read_where_the_policy_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("spacy", reason="the extra `names` is not installed")
    monkeypatch.setattr(process, "START_S", 600.0)
    (seen,) = look(tmp_path, turn("please call Ada Lovelace", screen(NAMES)))
    assert classes(seen) == {"internal", "pii"}
    assert left(seen) == {"internal"}
    assert "Lovelace" not in redacted_text(seen)


class Silent(Reader):
    async def read(self, texts: Sequence[str], timeout_ms: int) -> list[list[Named]]:
        raise Unread("the names were not read in time")


def test_names_that_were_not_read_give_every_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (seen,) = look(tmp_path, turn("the canary Ada Lovelace", screen(NAMES)), reader=Silent)
    assert classes(seen) == left(seen) == set(CLASSES)
    assert "every class" in caplog.text
    assert "canary" not in caplog.text


def test_what_is_too_long_to_be_read_is_not_redacted_away(tmp_path: Path) -> None:
    (seen,) = look(tmp_path, turn("longer than ten characters", screen({**NAMES, "most_chars": 10})))
    assert classes(seen) == {"internal", "pii"}
    assert "pii" in left(seen)


def test_a_large_body_is_looked_at_as_a_small_one_is(tmp_path: Path) -> None:
    (seen,) = look(tmp_path, turn("word " * 60_000 + MAIL))
    assert classes(seen) == {"internal", "pii"}


def test_what_is_only_possible_counts_where_it_could_have_been_denied(tmp_path: Path) -> None:
    request = asked(TICKET)
    assert classes(PLAIN.alone(request, ANYONE)) == {"internal"}
    seen = ASKING.alone(request, ANYONE)
    assert classes(seen) == {"internal", "pii"}
    assert seen.classification.possible == seen.classification.findings
    assert classes(ASKING.alone(request, ANYONE, denied=DENIED)) == {"internal"}
    (unasked,) = look(tmp_path, turn(TICKET, ASKING))
    assert classes(unasked) == {"internal", "pii"}


def test_only_what_nothing_else_gives_is_to_be_asked_about() -> None:
    seen = ASKING.alone(asked(f"{TICKET}, mail {MAIL}"), ANYONE)
    assert classes(seen) == {"internal", "pii"}
    assert seen.classification.possible == ()
    assert {one.detector for one in seen.classification.findings} == {"identifiers.phone", "identifiers.email"}
    assert ASKING.alone(asked(TICKET, data_class="pii"), ANYONE).classification.possible == ()


@each_row("text", [TICKET, f"{TICKET}, mail {MAIL}"])
def test_what_is_possible_is_redacted_like_all_that_is_found(text: str) -> None:
    seen = ASKING.alone(asked(text), ANYONE)
    assert left(seen) == {"internal"}
    assert "0171" not in redacted_text(seen)


def test_what_was_denied_keeps_no_redacted_request_in() -> None:
    seen = ASKING.alone(asked(f"{TICKET}, mail {MAIL}"), ANYONE, denied=DENIED)
    assert left(seen) == {"internal"}
    assert "0171 2345678" in redacted_text(seen)
    assert MAIL not in redacted_text(seen)


def test_a_possible_person_beside_an_illness_is_health() -> None:
    rules = screen(HEALTH, SECOND, classes=CLASSES_OF_HEALTH)
    request = asked(f"{TICKET}: has type 2 diabetes")
    assert classes(rules.alone(request, ANYONE)) == {"internal", "pii", "phi"}
    assert classes(rules.alone(request, ANYONE, denied=DENIED)) == {"internal"}
