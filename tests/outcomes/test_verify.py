"""Verifiers that hang, crash, talk nonsense or may not be told: nothing is said then, and it is counted and logged."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from router.decide.eligibility import ClassGuard, Requirements
from router.dispatch.egress import EgressFilter
from router.dispatch.http import HttpTransport
from router.dispatch.side_calls import LARGEST, Verifiers
from router.outcomes import verify
from router.outcomes.verify import ChildWork, VerifierPool, score_rows
from router.types.attempt import Verdict, VerifierRequest, accepted
from router.types.target import Wire
from tests.gateway.canned import Canned, canned
from tests.gateway.running import until
from tests.outcomes.values import asked, asking, expecting, saying, verifier
from tests.tables import data, each_row

CANARY = "CANARY-answer"
PLAIN = asked(asking(), saying(CANARY))
PATIENT_MS = 60_000
CLASSES = {
    "internal": Requirements(),
    "european": Requirements(regions=("eu",)),
    "secret": Requirements(local_only=True),
    "unkept": Requirements(retention_days_max=0),
    "barred": Requirements(block=True),
}
GUARD = ClassGuard(CLASSES, lambda body, _: frozenset({"secret"} if b"orchid" in body else ()))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about how soon a process starts or a schema is followed."""
    monkeypatch.setattr(verify, "START_S", PATIENT_MS / 1_000)
    monkeypatch.setattr(verify, "SCHEMA_MS", PATIENT_MS)


def judged(
    verifiers: Sequence[Any], questions: Iterable[VerifierRequest] = (PLAIN,)
) -> tuple[list[float | None], list[str]]:
    """What was said of each of `questions`, one after another, and what was counted meanwhile, sorted."""
    scores, counted = list[float | None](), list[str]()

    async def work() -> None:
        transport = HttpTransport()
        own = Verifiers(
            EgressFilter({Wire.OPENAI_COMPATIBLE: transport}), lambda name, became: counted.append(str(became))
        )
        own.adopt(verifiers)
        look = own.of(verifiers, GUARD)
        try:
            for question in questions:
                scores.extend(verdict.score for verdict in await look(question))
        finally:
            await own.close()
            transport.close()
            await asyncio.sleep(0)

    asyncio.run(work())
    return scores, sorted(counted)


def python(function: str, **fields: Any) -> Any:
    return verifier("python", function=f"tests.outcomes.functions:{function}", **{"timeout_ms": PATIENT_MS} | fields)


@each_row("function, score, became", data(__file__, "verify.yaml")["functions"])
def test_an_operator_s_function(
    function: str, score: float | None, became: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    assert judged([python(function)]) == ([score], [became])
    assert "CANARY" not in caplog.text
    assert (became in caplog.text) == (became in ("crashed", "nonsense"))


def test_a_function_that_hangs_says_nothing_and_holds_up_no_other(tmp_path: Path) -> None:
    verifiers = [python("hangs", timeout_ms=100), python("half", label="half")]
    assert judged(verifiers, [asked(asking(), saying(str(tmp_path / "sleeper")))]) == ([None, 0.5], ["timeout", "yes"])


def test_a_function_whose_time_is_over_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    """What waited meanwhile has its turn, by a process in the place of the one that was killed."""
    mark, hangs = tmp_path / "sleeper", ChildWork("tests.outcomes.functions:hangs")

    async def work() -> float | None:
        children = VerifierPool()
        hanging, fine = (asyncio.ensure_future(children.call(hangs, {"text": text}, {})) for text in (str(mark), ""))
        await asyncio.to_thread(written, mark)
        hanging.cancel()
        score = await fine
        await children.close()
        return score

    assert asyncio.run(work()) == 1.0
    until(lambda: not lives(written(mark)), 60)


def test_a_function_that_hangs_does_not_outlive_the_gateway(tmp_path: Path) -> None:
    mark = tmp_path / "sleeper"
    program = f"""
import asyncio
from router.outcomes.verify import ChildWork, VerifierPool
asyncio.run(VerifierPool().call(ChildWork("tests.outcomes.functions:hangs"), {{"text": {str(mark)!r}}}, {{}}))
"""
    with subprocess.Popen([sys.executable, "-c", program]) as gateway:
        sleeper = written(mark)
        gateway.kill()
    until(lambda: not lives(sleeper), 60)


def written(mark: Path) -> int:
    """The number of the process that the function started."""
    return int(until(lambda: mark.read_text() if mark.exists() else "", 60))


def lives(pid: int) -> bool:
    with suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


def test_a_process_that_dies_is_replaced_and_many_answers_are_looked_at_side_by_side_or_wait() -> None:
    questions = [asked(asking(), saying(text)) for text in ("fine", "die", "fine", "die", "fine")]
    became = ["crashed", "crashed", "yes", "yes", "yes"]
    assert judged([python("dies")], questions) == ([1.0, None, 1.0, None, 1.0], became)
    many = asked(asking(n=20), *[saying("a")] * 20)
    for processes in (1, 3):
        assert judged([python("half", processes=processes)], [many]) == ([0.5], ["yes"])


def test_a_function_has_neither_secrets_nor_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWPASS_SECRET", "CANARY-secret")
    assert judged([python("secrets")]) == ([1.0], ["yes"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = str(server.getsockname()[1])
        assert judged([python("calls_home")], [asked(asking(), saying(port))]) == ([None], ["crashed"])
        with pytest.raises(BlockingIOError):
            server.accept()


@each_row("kind", ["json_schema", "tool_call"])
def test_a_schema_that_never_ends_holds_up_no_request(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the client's: the process that follows it is ended, and the next one is there."""
    branches = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    endless = {"$defs": branches | {"a60": {"type": "null"}}, "$ref": "#/$defs/a0"}

    def questions() -> Iterator[VerifierRequest]:
        for schema, limit_ms in ((endless, 100), ({"type": "integer"}, PATIENT_MS)):
            monkeypatch.setattr(verify, "SCHEMA_MS", limit_ms)
            form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
            function = {"name": "f", "parameters": schema} if schema is endless else {"name": "f"}
            tools = [{"type": "function", "function": function}]
            yield asked(asking(response_format=form, tools=tools), saying("1", ("f", "{}")))

    assert judged([verifier(kind)], questions()) == ([None, 1.0], ["timeout", "yes"])


@each_row("schema", [{"type": "nonsense"}, {"$ref": "http://127.0.0.1:9/x"}, {"$ref": "file:///etc/hostname"}, 5, []])
def test_a_schema_of_a_client_that_is_none_says_nothing(schema: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    question = asked(asking(response_format=form), saying("1"))
    assert judged([verifier("json_schema")], [question]) == ([None], ["crashed"])


def test_all_choices_must_be_right() -> None:
    four, five, calling = saying("4"), saying("5"), saying("", ("f", "{}"))
    rows = {(four, four): 1.0, (four, five): 0.0, (four, calling): None, (five, calling): 0.0}
    assert judged([verifier("number")], [asked(expecting(4), *answers) for answers in rows])[0] == list(rows.values())


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned({"v": (200, b'{"score": 1}')}) as server:
        yield server


def service(server: Canned, **fields: Any) -> Any:
    return verifier("http", url=f"{server.url}/v/check?x=1", timeout_ms=PATIENT_MS, **fields)


@each_row(
    "status, body, score, became",
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
def test_a_service(
    server: Canned, status: int, body: bytes, score: float | None, became: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["v"] = (status, body)
    assert judged([service(server)]) == ([score], [became])
    assert "CANARY" not in caplog.text


def test_a_service_that_hangs_or_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        hangs, gone = (f"http://127.0.0.1:{each.getsockname()[1]}/" for each in (silent, closed))
        hanging = verifier("http", url=hangs, timeout_ms=300)
        assert judged([hanging, verifier("empty")]) == ([None, 1.0], ["timeout", "yes"])
        refused = verifier("http", url=gone, timeout_ms=PATIENT_MS)
        assert judged([refused, verifier("empty")]) == ([None, 1.0], ["crashed", "yes"])


def test_a_service_is_told_the_answer_and_what_is_expected(server: Canned) -> None:
    question = asked(expecting("42"), saying("41", ("f", "{}")))
    for more in ({}, {"with_request": True, "api_key": "key-1"}):
        assert judged([service(server, **more)], [question]) == ([1.0], ["yes"])
    plain, whole = server.requests
    assert (plain.path, plain.query) == ("/v/check", "x=1")
    assert "authorization" not in plain.headers
    assert whole.headers["authorization"].lower() == "bearer key-1"
    answer: dict[str, Any] = {"text": "41", "refusal": "", "finish_reason": "tool_calls"}
    answer |= {"tool_calls": [{"name": "f", "arguments": "{}"}]}
    assert json.loads(plain.body) == {"request_id": "r1", "target": "t", "answer": answer, "expected": ["42"]}
    assert json.loads(whole.body)["request"]["metadata"] == {"expected": "42"}


@each_row("classes, place, told", data(__file__, "verify.yaml")["classes"])
def test_classes_bind_verifiers_like_targets(server: Canned, classes: str, place: dict[str, Any], told: bool) -> None:
    """Also what only the answer shows."""
    server.clear()
    own, (text, names) = service(server, **place), ("orchid" if "orchid" in classes else CANARY, classes.split())
    question = asked(asking(), saying(text), classes=frozenset(names) - {"orchid"})
    assert judged([own], [question])[1] == (["yes"] if told else ["kept_in"])
    assert server.asked == (["v"] if told else [])


def test_claims_without_evidence_functions_and_addresses_that_are_none_are_told() -> None:
    for terms in ({"training": False}, {"retention_days": 0}, {"baa": True}, {"expires": "2027-02-30"}):
        with pytest.raises(ValidationError, match=r"evidence|calendar"):
            verifier("http", url="http://127.0.0.1:9/", terms=terms)
    for function in ("nowhere.at.all:verify", "tests.outcomes.functions", "os:path:join", "1:2"):
        with pytest.raises(ValidationError, match="function"):
            verifier("python", function=function)
    for url in ("ftp://x/", "http://", "http://user@host/", "http://h:99999/", "http://h/ x"):
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
        rows = score_rows(own, verdicts, "r", 1, "t")
        assert {(row.source, row.weight) for row in rows} == weights
        assert all(row.decides == (row.source == "verifier.exact") for row in rows)
    assert accepted([formal, wrong]) is False
