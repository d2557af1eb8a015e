"""What verifiers, judges and feedback see of a request stays with them: no file, row, metric or error repeats it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import Gateway, serving, until
from tests.gateway.school import CHEAP, DEAR, VERIFIER, Pupil, School, metric, schooling, seat

PROMPT = "CANARY-prompt-5127"
ANSWER = "CANARY-answer-5127"
RIGHT = "CANARY-expected-5127"
THOUGHT = "CANARY-judgement-5127"
SAID = "CANARY-verdict-5127"
SCHEMA = "CANARY-schema-5127"
SECRET = "CANARY" + "verifierkey5127"
WORDS = "CANARY-feedback-5127"
NOWHERE = (PROMPT, ANSWER, RIGHT, THOUGHT, SAID, SCHEMA, SECRET, WORDS)
PAIR = ["cheap", "dear"]


def policy(url: str) -> dict[str, Any]:
    http = {"kind": "http", "url": f"{url}/{VERIFIER}", "api_key": "${VERIFIER_KEY}", "with_request": True}
    verifiers = [
        {"kind": "exact"},
        {"kind": "json_schema"},
        {"kind": "python", "function": "tests.outcomes.functions:raises"},
        http,
    ]
    judge = {"target": "judge", "share": 1}
    common = {"verifiers": verifiers, "judge": judge, "failure_cost_usd": 0.1}
    targets = {name: seat(url, name, CHEAP if name == "cheap" else DEAR, 0.9) for name in (*PAIR, "judge")}
    return {
        "version": 1,
        "targets": targets,
        "routes": {
            "cascade": {"strategy": {"kind": "cascade", "targets": PAIR}, **common},
            "one": {"strategy": {"kind": "cost_of_pass", "targets": PAIR}, **common},
            "vote": {"strategy": {"kind": "self_consistency", "targets": PAIR}, "failure_cost_usd": 0.1},
        },
    }


def saying(text: str) -> Callable[[dict[str, Any]], str]:
    return lambda body: text


def exercise(gateway: Gateway, school: School) -> None:
    """Right answers, wrong ones, verifiers and judges that are ill, and words where none belong."""
    verifier, judge = school.pupils[VERIFIER], school.pupils["judge"]
    verdicts = [('{"passed": false}', 200), (SAID, 200), (SAID, 500), (f'{{"score": "{SAID}"}}', 200)]
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"pattern": f"({SCHEMA}"}}}
    for number, (said, status) in enumerate(verdicts):
        verifier.says, verifier.status = saying(said), status
        for route in ("cascade", "one", "vote"):
            for more in ({}, {"stream": True}, {"response_format": schema}):
                fields: dict[str, Any] = {"metadata": {"expected": RIGHT}, "max_tokens": 64, **more}
                reply = gateway.chat(route, f"What is 1{number} times 12? {PROMPT}", **fields)
                assert reply.status == 200, reply.body
    judge.status = 500
    request = gateway.chat("one", PROMPT, metadata={"expected": [RIGHT]}, max_tokens=64).headers["x-request-id"]
    refused = gateway.post("/v1/feedback", {"id": request, "passed": WORDS})
    assert (refused.status, WORDS.encode() in refused.body) == (400, False)
    assert gateway.post("/v1/feedback", {"id": WORDS, "passed": True}).status == 404
    assert gateway.post("/v1/feedback", {"id": request, "passed": True, "comment": WORDS}).status == 400
    assert gateway.post("/v1/feedback", {"id": request, "passed": True}).status == 200
    until(lambda: metric(gateway, "lowpass_judgements_total", result="failed"))
    assert metric(gateway, "lowpass_verdicts_total", verifier="http", result="nonsense")


@pytest.fixture(scope="module")
def exercised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a gateway that has seen the canaries, after its end; with its last words over HTTP."""
    home = tmp_path_factory.mktemp("outcomes-canary")
    pupils = {name: Pupil(saying(ANSWER)) for name in PAIR}
    verdict = Pupil(saying(f'{THOUGHT} {{"verdict": "yes"}}'))
    with schooling(judge=verdict, verify=Pupil(saying(SAID)), **pupils) as school:
        with serving(home, policy(school.url), {"VERIFIER_KEY": SECRET}) as gateway:
            exercise(gateway, school)
            for path in ("/metrics", "/dashboard", "/v1/reports/spend", "/v1/reports/incidents"):
                (home / path.replace("/", "_")).write_bytes(gateway.get(path).body)
            rows = gateway.rows("SELECT id FROM decisions")
            documents = [gateway.get(f"/v1/decisions/{row['id']}").body for row in rows]
            (home / "decisions").write_bytes(b"\n".join(documents))
        assert any(SECRET in header for header in school.keys)
        assert school.of(VERIFIER)[0]["expected"] == [RIGHT]
        yield home


def test_no_file_holds_what_was_said(exercised: Path) -> None:
    """The database included, in its raw bytes, write-ahead log and all."""
    seen = {path.name: path.read_bytes() for path in exercised.rglob("*") if path.is_file()}
    assert {"output.log", "lowpass.db", "decisions", "_metrics"} <= set(seen)
    found = [(name, canary) for name, data in seen.items() for canary in NOWHERE if canary.encode() in data]
    assert found == []


def test_the_rows_are_there(exercised: Path) -> None:
    assert b"verifier.exact" in (exercised / "lowpass.db").read_bytes()
    assert b"verifier python said nothing" in (exercised / "output.log").read_bytes()
