"""The classes of a request: of what is found, declared, remembered, or can not be read; and what redaction leaves."""

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.api.parse import parse
from router.classify import ner
from router.classify.detector import DoubtfulValue
from router.classify.ner import FoundName, NamesNotRead, NamesReader
from router.classify.sessions import SqliteSessions
from router.config.policy import Sensitivity
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import SqliteLedger
from router.screen import Screen, Screened, ScreenSources
from router.types.request import Caller, Endpoint, Modality, Request
from router.types.target import Secret
from tests.classify.looking import KEY, MAIL
from tests.tables import each_row

CLASSES = {"public": {}, "internal": {}, "pii": {"redact": "needed"}, "secret": {"block": True}}
DETECTORS = [{"kind": "identifiers", "class": "pii"}, {"kind": "secrets", "class": "secret"}]
HEALTH, CLASSES_OF_HEALTH = {"kind": "health", "class": "phi"}, CLASSES | {"phi": {}}
NAMES = {"kind": "names", "class": "pii", "only": ["person"], "timeout_ms": 600_000}
SECOND = {"kind": "local_llm", "target": "local"}
TICKET = "ticket 0171 2345678"
DENIED = frozenset({DoubtfulValue("identifiers.phone", "pii", "0171 2345678")})
ANYONE = Caller()


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


Turn = tuple[Screen, Request]


def turn(text: str, rules: Screen = PLAIN, **headers: str) -> Turn:
    return rules, asked(text, **headers)


def look(folder: Path, *turns: Turn, reader: type[NamesReader] = NamesReader) -> list[Screened]:
    """What each turn holds, one after the other, with the sessions of a ledger in a folder."""

    async def run() -> list[Screened]:
        SqliteLedger(folder / "lowpass.db").migrate()
        journal = SqliteJournal(folder / "lowpass.db")
        sources = ScreenSources(SqliteSessions(journal), reader(), Secret("of the test"))
        try:
            return [await rules.look(request, ANYONE, sources) for rules, request in turns]
        finally:
            await sources.reader.close()
            await journal.end()

    return asyncio.run(run())


@each_row("modality", Modality)
def test_what_can_not_be_read_has_the_class_that_the_policy_gives_it(modality: Modality) -> None:
    request = msgspec.structs.replace(asked("hello"), unscannable=frozenset({modality}))
    seen = screen(unscannable={modality.value: "pii"}).alone(request, ANYONE)
    assert classes(seen) == {"internal", "pii"}
    assert "pii" in left(seen)
    assert classes(PLAIN.alone(request, ANYONE)) == {"internal"}


def test_what_was_found_is_redacted_in_later_turns_too_but_what_was_declared_stays(tmp_path: Path) -> None:
    found = turn(f"mail {MAIL}", session="found"), turn("hello", session="found")
    declared = turn("hello", session="declared", data_class="pii"), turn("hello", session="declared")
    _, after_found, _, after_declared = look(tmp_path, *found, *declared)
    assert left(after_found) == {"internal"}
    assert left(after_declared) == {"internal", "pii"}


def test_a_class_that_the_policy_has_no_more_is_every_class(tmp_path: Path) -> None:
    fewer = screen(classes={"internal": {}, "top": {}}, detectors=[])
    _, seen = look(tmp_path, turn(f"mail {MAIL}", session="s"), turn("hello", fewer, session="s"))
    assert classes(seen) == {"internal", "top"}


def test_what_can_not_be_replaced_keeps_its_class_and_where_nothing_may_be_redacted_nothing_is() -> None:
    for hidden in (base64.b64encode(f"mail to {MAIL} please".encode()).decode(), f"{KEY} and {MAIL}"):
        seen = PLAIN.alone(asked(f"see {hidden}"), ANYONE)
        assert (classes(seen) & left(seen)) - {"internal"}
    assert PLAIN.alone(asked(f"the key {KEY}"), ANYONE).redacted is None


def test_what_stands_beside_a_value_is_not_redacted_away_with_it() -> None:
    """Health is seen only beside a person; where it may not be redacted it stays when the person goes."""
    seen = screen(HEALTH, classes=CLASSES_OF_HEALTH).alone(asked(f"diabetes, treated with metformin: {MAIL}"), ANYONE)
    assert classes(seen) == {"internal", "pii", "phi"}
    assert left(seen) == {"internal", "phi"}


def test_two_callers_have_placeholders_of_their_own_in_sessions_of_one_name() -> None:
    seen = [PLAIN.alone(asked(f"mail {MAIL}", session="s"), caller) for caller in (ANYONE, ANYONE, Caller(id="other"))]
    mine, again, other = map(redacted_text, seen)
    assert mine == again != other


def test_names_are_read_where_the_policy_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("spacy", reason="the extra `names` is not installed")
    monkeypatch.setattr(ner, "START_S", 600.0)
    (seen,) = look(tmp_path, turn("please call Ada Lovelace", screen(NAMES)))
    assert classes(seen) == {"internal", "pii"}
    assert left(seen) == {"internal"}
    assert "Lovelace" not in redacted_text(seen)


class Silent(NamesReader):
    async def read(self, texts: Sequence[str], timeout_ms: int) -> list[list[FoundName]]:
        raise NamesNotRead("the names were not read in time")


def test_names_that_were_not_read_give_every_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (seen,) = look(tmp_path, turn("the canary Ada Lovelace", screen(NAMES)), reader=Silent)
    assert classes(seen) == left(seen) == set(CLASSES)
    assert "every class" in caplog.text
    assert "canary" not in caplog.text


def test_a_large_body_is_looked_at_and_what_is_too_long_to_be_read_is_not_redacted_away(tmp_path: Path) -> None:
    long = turn("longer than ten characters", screen({**NAMES, "most_chars": 10}))
    large, unread = look(tmp_path, turn("word " * 60_000 + MAIL), long)
    assert classes(large) == classes(unread) == {"internal", "pii"}
    assert "pii" in left(unread)


@each_row("text", [TICKET, f"{TICKET}, mail {MAIL}"])
def test_what_is_possible_is_redacted_like_all_that_is_found(text: str) -> None:
    seen = ASKING.alone(asked(text), ANYONE)
    assert left(seen) == {"internal"}
    assert "0171" not in redacted_text(seen)


def test_a_possible_person_beside_an_illness_is_health() -> None:
    rules = screen(HEALTH, SECOND, classes=CLASSES_OF_HEALTH)
    request = asked(f"{TICKET}: has type 2 diabetes")
    assert classes(rules.alone(request, ANYONE)) == {"internal", "pii", "phi"}
    assert classes(rules.alone(request, ANYONE, denied=DENIED)) == {"internal"}


def test_other_requests_go_on_while_a_text_of_some_kb_is_scanned(tmp_path: Path) -> None:
    """One that is made to be slow takes as long as hundreds of requests."""
    loops = list[int]()

    async def run() -> None:
        journal = SqliteJournal(tmp_path / "lowpass.db")
        sources = ScreenSources(SqliteSessions(journal), NamesReader(), Secret("of the test"))
        for text in ("password='" * 100, "password='" * 1_000):
            looking, count = asyncio.ensure_future(PLAIN.look(asked(text), ANYONE, sources)), 0
            while not looking.done():
                await asyncio.sleep(0)
                count += 1
            loops.append(count)
        await sources.reader.close()
        await journal.end()

    SqliteLedger(tmp_path / "lowpass.db").migrate()
    asyncio.run(run())
    assert loops[0] == 1
    assert loops[1] > 10
