"""What a client says stays between it and the upstream: no log, metric, decision or ledger row repeats it."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Upstream
from tests.gateway.canned import PAUSE, canned
from tests.gateway.running import CHAT, Gateway, local, ordered, serving, target, until
from tests.gateway.school import CHEAP, DEAR, VERIFIER, Pupil, School, metric, schooling, seat

WORDS = [
    f"CANARY-{name}-7391"
    for name in ("prompt", "argument", "image", "schema", "field", "answer", "right", "thought", "verdict", "comment")
]
PROMPT, ARGUMENT, IMAGE, SCHEMA, FIELD, ANSWER, RIGHT, THOUGHT, VERDICT, COMMENT = WORDS
UPSTREAM_KEY = "sk-CANARYupstream7391"
WRONG_KEY = "lp-CANARYwrong7391" + "x" * 30
VERIFIER_KEY = "CANARY" + "verifierkey7391"
NOWHERE = (*WORDS, UPSTREAM_KEY, WRONG_KEY, VERIFIER_KEY)
SESSION = "CANARY-session-7391"
"""The only one that is written down."""
ENVIRON = {"UPSTREAM_KEY": UPSTREAM_KEY, "VERIFIER_KEY": VERIFIER_KEY}
BEHAVIOURS = ["normal", "error-500", "bad-json", "bad-sse-json", "cut", "hang", "cut-after-first", "context-length"]
BEHAVIOURS += ["auth", "no-such-model"]
QUOTING = {"error": {"message": f"cannot parse {ANSWER} {UPSTREAM_KEY}", "type": "server_error", "code": ANSWER}}
PIECE = {"id": ANSWER, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": ANSWER}}]}
QUOTES = {
    "error-quoting": (500, json.dumps(QUOTING).encode()),
    "html-quoting": (502, f"<html>{ANSWER}</html>".encode()),
    "text-quoting": (200, ANSWER.encode()),
    "stream-quoting": (200, b"data: " + json.dumps(PIECE).encode() + b"\n\n" + PAUSE + f"data: {ANSWER}\n\n".encode()),
    "usage-quoting": (200, json.dumps({"choices": [{"message": {"content": ANSWER}}], "usage": ANSWER}).encode()),
}


def policy(url: str, quoting: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"timeouts": {"first_ms": 300}, "api_key": "${UPSTREAM_KEY}"}
    targets = {name: target(url, name, flavour="xai", **fields) for name in BEHAVIOURS}
    targets |= {name: target(quoting, "m", flavour=name, **fields) for name in QUOTES}
    targets["home"] = local(url, "normal")
    detectors = [{"kind": "keywords", "class": "secret", "words": ["CANARY-hidden"]}]
    sensitivity = {"classes": {"internal": {}, "secret": {"local_only": True}}, "detectors": detectors}
    routes = {"auto": ordered(*BEHAVIOURS[1:], "normal"), "local": ordered("normal", "home")}
    budgets = [{"id": "tiny", "limit_usd": 0.0000001, "window": "day", "tags": ["capped"]}]
    return {"version": 1, "targets": targets, "routes": routes, "sensitivity": sensitivity, "budgets": budgets}


def body(model: str, **more: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ARGUMENT}}
    parts = [{"type": "text", "text": PROMPT}, {"type": "image_url", "image_url": {"url": f"https://x.y/{IMAGE}"}}]
    turns = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    schema = {"type": "object", "properties": {SCHEMA: {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    last = [{"role": "user", "content": parts if more.pop("image", False) else PROMPT}]
    return {"model": model, "messages": turns + last, "tools": tools, "note": FIELD, **more}


@contextmanager
def requests(home: Path, upstream: Upstream) -> Iterator[Gateway]:
    """Every way to serve and to fail, with the canaries everywhere."""
    with canned(QUOTES) as quoting, serving(home, policy(upstream.url, quoting.url), ENVIRON) as gateway:
        for model in ("auto", "local", *BEHAVIOURS, *QUOTES):
            for stream in (False, True):
                reply = gateway.post(CHAT, body(model, stream=stream), x_lowpass_session=SESSION)
                # A provider may quote the key that it refused; the client must not learn it.
                assert UPSTREAM_KEY.encode() not in reply.body
        whole = json.dumps(body("normal")).encode()
        for sent in (
            *(body("normal", image=True), body("local", note="CANARY-hidden " + FIELD), body("normal", n=PROMPT)),
            *(body(PROMPT), whole[:-5], whole + b"\xff"),
        ):
            gateway.post(CHAT, sent)
        gateway.post(CHAT, whole, x_lowpass_tags="capped")
        gateway.post(CHAT, whole, authorization=f"Bearer {WRONG_KEY}", x_lowpass_budget=PROMPT)
        gateway.post("/v1/route", body("auto"))
        gateway.post("/v1/responses", {"model": "normal", "input": PROMPT, "instructions": ARGUMENT})
        gateway.post("/v1/feedback", {"id": PROMPT, "score": 1})
        for endpoint, field in (("embeddings", "input"), ("completions", "prompt")):
            gateway.post(f"/v1/{endpoint}", {"model": "normal", field: PROMPT})
        gateway.get(f"/v1/models/{PROMPT}")
        with gateway.raw() as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nx-canary: {PROMPT}\r\ncontent-length: 99\r\n\r\n"
            connection.sendall(f"{head}{PROMPT}".encode())
        yield gateway
    assert (home / "decisions").read_bytes().count(b'"chosen"') > 20
    holds = [SESSION.encode() in (home / name).read_bytes() for name in ("lowpass.db", "output.log")]
    assert holds == [True, False]


def judged(url: str) -> dict[str, Any]:
    http = {"kind": "http", "url": f"{url}/{VERIFIER}", "api_key": "${VERIFIER_KEY}", "with_request": True}
    python = {"kind": "python", "function": "tests.outcomes.functions:raises"}
    verifiers = [{"kind": "exact"}, {"kind": "json_schema"}, python, http]
    common = {"verifiers": verifiers, "judge": {"target": "judge", "share": 1}, "failure_cost_usd": 0.1}
    prices: dict[str, Any] = {"cheap": CHEAP, "dear": DEAR, "judge": DEAR}
    targets = {name: seat(url, name, price, 0.9) for name, price in prices.items()}
    routes: dict[str, Any] = {
        name: {"strategy": {"kind": kind, "targets": ["cheap", "dear"]}, **common}
        for name, kind in (("cascade", "cascade"), ("one", "cost_of_pass"))
    }
    vote = {"kind": "self_consistency", "targets": ["cheap", "dear"]}
    routes["vote"] = {"strategy": vote, "failure_cost_usd": 0.1}
    return {"version": 1, "targets": targets, "routes": routes}


def saying(text: str) -> Callable[[dict[str, Any]], str]:
    return lambda body: text


def judge(gateway: Gateway, school: School) -> None:
    """Right answers, wrong ones, verifiers and judges that are ill, and words where none belong."""
    verifier = school.pupils[VERIFIER]
    verdicts = [('{"passed": false}', 200), (VERDICT, 200), (VERDICT, 500), (f'{{"score": "{VERDICT}"}}', 200)]
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"pattern": f"({SCHEMA}"}}}
    for number, (text, status) in enumerate(verdicts):
        verifier.says, verifier.status = saying(text), status
        for route in ("cascade", "one", "vote"):
            for more in ({}, {"stream": True}, {"response_format": schema}):
                fields: dict[str, Any] = {"metadata": {"expected": RIGHT}, "max_tokens": 64, **more}
                reply = gateway.chat(route, f"What is 1{number} times 12? {PROMPT}", **fields)
                assert reply.status == 200, reply.body
    school.pupils["judge"].status = 500
    request = gateway.chat("one", PROMPT, metadata={"expected": [RIGHT]}, max_tokens=64).id
    refused = gateway.post("/v1/feedback", {"id": request, "passed": COMMENT})
    assert (refused.status, COMMENT.encode() in refused.body) == (400, False)
    for status, fields in ((404, {"id": COMMENT}), (400, {"id": request, "comment": COMMENT}), (200, {"id": request})):
        assert gateway.post("/v1/feedback", {"passed": True, **fields}).status == status
    until(lambda: metric(gateway, "lowpass_judgements_total", result="failed"))
    assert metric(gateway, "lowpass_verdicts_total", verifier="http", result="nonsense")


@contextmanager
def judgements(home: Path, upstream: Upstream) -> Iterator[Gateway]:
    pupils = {"cheap": saying(ANSWER), "dear": saying(ANSWER), "judge": saying(f'{THOUGHT} {{"verdict": "yes"}}')}
    pupils[VERIFIER] = saying(VERDICT)
    with schooling(**{name: Pupil(says) for name, says in pupils.items()}) as school:
        with serving(home, judged(school.url), ENVIRON) as gateway:
            judge(gateway, school)
            yield gateway
        assert any(VERIFIER_KEY in key for key in school.keys)
        assert school.of(VERIFIER)[0]["expected"] == [RIGHT]
    assert b"verifier.exact" in (home / "lowpass.db").read_bytes()
    assert b"verifier python said nothing" in (home / "output.log").read_bytes()


PAGES = ("metrics", "health/ready", "dashboard", "v1/models", "v1/reports/spend?by=target", "v1/reports/incidents")


@pytest.mark.parametrize("exercise", [requests, judgements])
def test_no_file_of_the_gateway_holds_what_was_said(
    tmp_path: Path, upstream: Upstream, exercise: Callable[[Path, Upstream], AbstractContextManager[Gateway]]
) -> None:
    """The database included, in its raw bytes, write-ahead log and all; nor what it says over HTTP at its end."""
    with exercise(tmp_path, upstream) as gateway:
        for page in PAGES:
            (tmp_path / page.replace("/", "_")).write_bytes(gateway.get(f"/{page}").body)
        decisions = [gateway.get(f"/v1/decisions/{row['id']}").body for row in gateway.rows("SELECT id FROM decisions")]
        (tmp_path / "decisions").write_bytes(b"\n".join(decisions))
    texts = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"output.log", "lowpass.db", "decisions", "metrics"} <= set(texts)
    assert [(name, canary) for name, text in texts.items() for canary in NOWHERE if canary.encode() in text] == []
