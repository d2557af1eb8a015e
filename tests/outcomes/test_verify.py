"""Verifiers that hang, crash, talk nonsense or may not be told: nothing is said then, and it is counted and logged."""

import asyncio
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from router.decide.guard import ClassGuard
from router.decide.requirements import Requirements
from router.dispatch.door import Door
from router.dispatch.http import HttpTransport
from router.dispatch.verify import LARGEST, Verifiers
from router.outcomes.child.pool import Pool, Work
from router.outcomes.verify import Became, said
from router.types.outcome import Asked, Verdict, accepted
from router.types.target import Wire
from tests.gateway.canned import Canned, canned
from tests.gateway.running import until
from tests.outcomes.values import asked, asking, expecting, saying, verifier

CANARY = "CANARY-answer"
CLASSES = {
    "internal": Requirements(),
    "european": Requirements(regions=("eu",)),
    "secret": Requirements(local_only=True),
    "unkept": Requirements(retention_days_max=0),
    "barred": Requirements(block=True),
}
GUARD = ClassGuard(CLASSES, lambda body: frozenset({"secret"} if b"orchid" in body else ()))
ENDLESS = {
    "$defs": {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)} | {"a60": {"type": "null"}},
    "$ref": "#/$defs/a0",
}
"""2^60 ways to fail."""


class Outcome:
    """What was said, and what was counted meanwhile."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.counted: Counter[tuple[str, Became]] = Counter()

    @property
    def scores(self) -> list[float | None]:
        return [verdict.score for verdict in self.verdicts]

    @property
    def became(self) -> list[str]:
        return sorted(str(became) for (_, became), times in self.counted.items() for _ in range(times))


def judged(verifiers: Sequence[Any], *questions: Asked, guard: ClassGuard = GUARD) -> Outcome:
    """Asks about each of `questions`, one after another."""
    outcome = Outcome()

    async def work() -> None:
        transport = HttpTransport()
        door = Door({Wire.OPENAI_COMPATIBLE: transport})
        own = Verifiers(door, lambda name, became: outcome.counted.update([(name, became)]))
        own.adopt(verifiers)
        verify = own.of(verifiers, guard)
        try:
            for question in questions:
                outcome.verdicts += await verify(question)
        finally:
            await own.close()
            transport.close()
            await asyncio.sleep(0)

    asyncio.run(work())
    return outcome


def python(function: str, **fields: Any) -> Any:
    return verifier("python", function=f"tests.outcomes.functions:{function}", **({"timeout_ms": 10_000} | fields))


PLAIN = asked(asking(), saying(CANARY))


@pytest.mark.parametrize(
    ("function", "score", "became"),
    [
        ("half", 0.5, "yes"),
        ("unsure", None, "not_applicable"),
        ("long_enough", 0.0, "no"),
        ("prints", 1.0, "yes"),
        ("raises", None, "crashed"),
        ("leaves", None, "crashed"),
        ("hoards", None, "crashed"),
        ("rambles", None, "nonsense"),
        ("too_much", None, "nonsense"),
        ("nan", None, "nonsense"),
        ("missing", None, "crashed"),
    ],
)
def test_a_function_of_the_operators(
    function: str, score: float | None, became: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = judged([python(function)], PLAIN)
    assert (outcome.scores, outcome.became) == ([score], [became])
    assert "CANARY" not in caplog.text
    assert (became in caplog.text) == (became in ("crashed", "nonsense"))


def test_a_function_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    mark = tmp_path / "sleeper"
    outcome = judged(
        [python("hangs", timeout_ms=1_500), python("half", label="half")], asked(asking(), saying(str(mark)))
    )
    assert outcome.scores == [None, 0.5]
    assert outcome.became == ["timeout", "yes"]
    sleeper = int(mark.read_text())
    until(lambda: not _lives(sleeper))


def test_a_function_that_hangs_does_not_outlive_the_gateway(tmp_path: Path) -> None:
    mark = tmp_path / "sleeper"
    program = f"""
import asyncio
from router.outcomes.child.pool import Pool, Work
asyncio.run(Pool().call(Work("tests.outcomes.functions:hangs"), {{"text": {str(mark)!r}}}, {{}}))
"""
    with subprocess.Popen([sys.executable, "-c", program]) as gateway:
        sleeper = int(until(lambda: mark.read_text() if mark.exists() else ""))
        gateway.kill()
    until(lambda: not _lives(sleeper))


def test_one_that_waits_while_another_hangs_has_its_turn(tmp_path: Path) -> None:
    """By a process in the place of the one that was killed."""
    said: list[float | str | None] = []

    async def call(pool: Pool, text: str, limit_s: float) -> None:
        work = Work("tests.outcomes.functions:hangs_at_times")
        try:
            said.append(await asyncio.wait_for(pool.call(work, {"text": text}, {}), limit_s))
        except TimeoutError:
            said.append("timeout")

    async def both() -> None:
        pool = Pool()
        await asyncio.gather(call(pool, "hang", 1), call(pool, "fine", 20))
        await pool.close()

    asyncio.run(both())
    assert said == ["timeout", 1.0]


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


def test_a_process_that_dies_is_replaced() -> None:
    questions = [asked(asking(), saying(text)) for text in ("fine", "die", "fine", "die", "fine")]
    outcome = judged([python("dies")], *questions)
    assert outcome.scores == [1.0, None, 1.0, None, 1.0]
    assert outcome.became == ["crashed", "crashed", "yes", "yes", "yes"]


def test_many_at_once_are_looked_at_side_by_side_or_wait() -> None:
    for processes in (1, 3):
        outcome = judged([python("half", processes=processes)], asked(asking(n=20), *[saying("a")] * 20))
        assert outcome.scores == [0.5]


def test_a_function_has_neither_secrets_nor_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWPASS_SECRET", "CANARY-secret")
    assert judged([python("secrets")], PLAIN).scores == [1.0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        assert judged([python("calls_home")], asked(asking(), saying(str(port)))).became == ["crashed"]
        with pytest.raises(TimeoutError):
            server.accept()


def test_what_is_not_installed_is_told() -> None:
    for function in ("nowhere.at.all:verify", "tests.outcomes.functions", "os:path:join", "1:2"):
        with pytest.raises(ValueError, match="function"):
            verifier("python", function=function)


@pytest.mark.parametrize("kind", ["json_schema", "tool_call"])
def test_a_schema_that_never_ends_holds_up_nobody(kind: str) -> None:
    """It is the client's: the process that follows it is ended, and the next one is there."""
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": ENDLESS}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": ENDLESS}}]
    sound = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
    answer = saying("1", ("f", "{}"))
    outcome = judged(
        [verifier(kind)],
        asked(asking(response_format=form, tools=tools), answer),
        asked(asking(response_format=sound, tools=[{"type": "function", "function": {"name": "f"}}]), answer),
    )
    assert outcome.scores == [None, 1.0]
    assert outcome.became == ["timeout", "yes"]


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"$ref": "http://127.0.0.1:9/x"}, {"$ref": "file:///etc/hostname"}, 5, []]
)
def test_a_schema_of_a_client_that_is_none_says_nothing(schema: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    outcome = judged([verifier("json_schema")], asked(asking(response_format=form), saying("1")))
    assert (outcome.scores, outcome.became) == ([None], ["crashed"])


def test_all_choices_must_be_right() -> None:
    request, own = expecting(4), [verifier("number")]
    assert judged(own, asked(request, saying("4"), saying("4"))).scores == [1.0]
    assert judged(own, asked(request, saying("4"), saying("5"))).scores == [0.0]
    calling = saying("", ("f", "{}"))
    assert judged(own, asked(request, saying("4"), calling)).scores == [None]
    assert judged(own, asked(request, saying("5"), calling)).scores == [0.0]


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned({}) as server:
        yield server


def service(server: Canned, name: str = "v", **fields: Any) -> Any:
    return verifier("http", url=f"{server.url}/{name}/check?x=1", **({"timeout_ms": 3_000} | fields))


@pytest.mark.parametrize(
    ("status", "body", "score", "became"),
    [
        (200, b'{"score": 0.75}', 0.75, "yes"),
        (200, b'{"passed": false}', 0.0, "no"),
        (200, b'{"passed": true, "why": "it is right"}', 1.0, "yes"),
        (200, b'{"score": null}', None, "not_applicable"),
        (200, b'{"score": 7}', None, "nonsense"),
        (200, b'{"score": "1"}', None, "nonsense"),
        (200, b"CANARY-reply", None, "nonsense"),
        (200, b"", None, "nonsense"),
        (200, b'{"score": 1, "why": "' + b"x" * LARGEST + b'"}', None, "nonsense"),
        (500, b"CANARY-reply", None, "crashed"),
        (302, b"", None, "crashed"),
    ],
)
def test_a_service_of_the_operators(
    server: Canned, status: int, body: bytes, score: float | None, became: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["v"] = (status, body)
    outcome = judged([service(server)], PLAIN)
    assert (outcome.scores, outcome.became) == ([score], [became])
    assert "CANARY" not in caplog.text


def test_a_service_that_hangs_or_is_gone(server: Canned) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = verifier("http", url=f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout_ms=300, label="hangs")
        gone = verifier("http", url="http://127.0.0.1:9/", label="gone")
        outcome = judged([hanging, gone, verifier("empty")], PLAIN)
    assert outcome.scores == [None, None, 1.0]
    assert outcome.counted[("hangs", Became.TIMEOUT)] == outcome.counted[("gone", Became.CRASHED)] == 1


def test_a_service_is_told_the_answer_and_what_is_expected() -> None:
    heard: list[bytes] = []
    over = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        heard.extend([head, await reader.readexactly(length)])
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"score":1}')
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        over.set()

    async def work() -> None:
        listening = await asyncio.start_server(listen, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/check?x=1"
        transport = HttpTransport()
        own = Verifiers(Door({Wire.OPENAI_COMPATIBLE: transport}), lambda name, became: None)
        for more in ({}, {"with_request": True, "api_key": "key-1"}):
            verify = own.of([verifier("http", url=url, **more)], GUARD)
            (verdict,) = await verify(asked(expecting("42"), saying("41", ("f", "{}"))))
            assert verdict.score == 1.0
            await over.wait()
            over.clear()
        transport.close()
        listening.close()
        await asyncio.sleep(0)

    asyncio.run(work())
    head, told, keyed, whole = heard[0], json.loads(heard[1]), heard[2], json.loads(heard[3])
    assert head.startswith(b"POST /check?x=1 HTTP/1.1\r\n")
    assert b"authorization" not in head.lower()
    assert b"authorization: bearer key-1\r\n" in keyed.lower()
    answer = {
        "text": "41",
        "tool_calls": [{"name": "f", "arguments": "{}"}],
        "refusal": "",
        "finish_reason": "tool_calls",
    }
    assert told == {"request_id": "r1", "target": "t", "answer": answer, "expected": ["42"]}
    assert whole["request"]["metadata"] == {"expected": "42"}


@pytest.mark.parametrize(
    ("classes", "place", "told"),
    [
        ({"internal"}, {}, True),
        ({"internal", "european"}, {}, False),
        ({"internal", "european"}, {"region": "eu"}, True),
        ({"internal", "secret"}, {"region": "eu"}, False),
        ({"internal", "secret"}, {"local": True}, True),
        ({"internal", "unkept"}, {}, False),
        ({"internal", "unkept"}, {"terms": {"retention_days": 0, "evidence": "contract 7"}}, True),
        ({"unkept"}, {"terms": {"retention_days": 0, "evidence": "contract 7", "expires": "2020-01-01"}}, False),
        ({"barred"}, {"local": True}, False),
        (set(), {}, False),
    ],
)
def test_classes_bind_verifiers_as_they_bind_targets(
    server: Canned, classes: set[str], place: dict[str, Any], told: bool
) -> None:
    server.answers["v"] = (200, b'{"score": 1}')
    outcome = judged([service(server, **place)], asked(asking(), saying(CANARY), classes=frozenset(classes)))
    assert outcome.became == (["yes"] if told else ["kept_in"])
    assert server.asked == (["v"] if told else [])


def test_what_only_the_answer_shows_keeps_it_in(server: Canned) -> None:
    server.answers["v"] = (200, b'{"score": 1}')
    assert judged([service(server)], asked(asking(), saying("an orchid"))).became == ["kept_in"]
    assert server.asked == []


def test_claims_need_evidence() -> None:
    for terms in ({"training": False}, {"retention_days": 0}, {"baa": True}, {"expires": "2027-02-30"}):
        with pytest.raises(ValueError, match=r"evidence|date"):
            verifier("http", url="http://127.0.0.1:9/", terms=terms)


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "http://user@host/", "http://h:99999/", "http://h/ x"])
def test_addresses_that_are_none_are_told(url: str) -> None:
    with pytest.raises(ValidationError):
        verifier("http", url=url)


def test_a_yes_is_worth_what_its_verifier_decides() -> None:
    own = [verifier("empty"), verifier("exact"), verifier("json_schema")]
    formal, right, wrong = Verdict("empty", 1.0), Verdict("exact", 1.0), Verdict("exact", 0.0)
    silent = Verdict("json_schema", None)
    cases = {
        (formal, right, silent): {("verifier.empty", 0.0), ("verifier.exact", 1.0)},
        (formal, wrong, silent): {("verifier.empty", 0.0), ("verifier.exact", 1.0)},
        (formal, Verdict("exact", None), silent): {("verifier.empty", 1.0)},
        (Verdict("empty", 0.0), right, silent): {("verifier.empty", 1.0), ("verifier.exact", 0.0)},
        (silent,): set(),
    }
    for verdicts, weights in cases.items():
        rows = said(own, verdicts, "r", 1, "t")
        assert {(row.source, row.weight) for row in rows} == weights
        assert all(row.decides == (row.source == "verifier.exact") for row in rows)
    assert accepted([formal, wrong]) is False
