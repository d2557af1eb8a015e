"""What a client says stays between it and the upstream: no log, metric, decision or ledger row repeats it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.canned import PAUSE, canned
from tests.gateway.running import CHAT, Gateway, local, ordered, serving, target
from tests.upstream import Upstream

PROMPT = "CANARY-prompt-7391"
ARGUMENT = "CANARY-argument-7391"
IMAGE = "CANARY-image-7391"
SCHEMA = "CANARY-schema-7391"
FIELD = "CANARY-field-7391"
ANSWER = "CANARY-answer-7391"
UPSTREAM_KEY = "sk-CANARYupstream7391"
SESSION = "CANARY-session-7391"
WRONG_KEY = "lp-CANARYwrong7391" + "x" * 30
NOWHERE = (PROMPT, ARGUMENT, IMAGE, SCHEMA, FIELD, ANSWER, UPSTREAM_KEY, WRONG_KEY)
BEHAVIOURS = (
    "normal",
    "error-500",
    "bad-json",
    "bad-sse-json",
    "cut",
    "hang",
    "cut-after-first",
    "context-length",
    "auth",
    "no-such-model",
)
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
    targets = {name: target(url, name, **fields) for name in BEHAVIOURS}
    targets |= {name: target(quoting, "m", flavour=name, **fields) for name in QUOTES}
    targets["home"] = local(url, "normal")
    sensitivity = {
        "classes": {"internal": {}, "secret": {"local_only": True}},
        "detectors": [{"kind": "keywords", "class": "secret", "words": ["CANARY-hidden"]}],
    }
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


def exercise(gateway: Gateway) -> None:
    """Every way to serve and to fail, with the canaries everywhere."""
    session = {"x_lowpass_session": SESSION}
    for model in ("auto", "local", *BEHAVIOURS, *QUOTES):
        for stream in (False, True):
            gateway.post(CHAT, body(model, stream=stream), **session)
    gateway.post(CHAT, body("normal", image=True))
    gateway.post(CHAT, body("local", note="CANARY-hidden " + FIELD))
    gateway.post(CHAT, body("normal"), x_lowpass_tags="capped")
    gateway.post(CHAT, body("normal", n=f"{PROMPT}"))
    gateway.post(CHAT, json.dumps(body("normal")).encode()[:-5])
    gateway.post(CHAT, json.dumps(body("normal")).encode() + b"\xff")
    gateway.post(CHAT, body(PROMPT))
    gateway.post(CHAT, body("normal"), authorization=f"Bearer {WRONG_KEY}", x_lowpass_budget=PROMPT)
    gateway.post("/v1/route", body("auto"))
    gateway.post("/v1/responses", {"model": "normal", "input": PROMPT, "instructions": ARGUMENT})
    gateway.post("/v1/embeddings", {"model": "normal", "input": PROMPT})
    gateway.post("/v1/completions", {"model": "normal", "prompt": PROMPT})
    gateway.post("/v1/feedback", {"id": PROMPT, "score": 1})
    gateway.get(f"/v1/models/{PROMPT}")
    with gateway.raw() as connection:
        connection.sendall(f"POST {CHAT} HTTP/1.1\r\nx-canary: {PROMPT}\r\ncontent-length: 99\r\n\r\n{PROMPT}".encode())


@pytest.fixture(scope="module")
def exercised(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Path:
    """The folder of a gateway that has seen the canaries, after its end; with its last words over HTTP."""
    home = tmp_path_factory.mktemp("canary")
    with canned(QUOTES) as quoting:
        rules = policy(upstream_server.url, quoting.url)
        with serving(home, rules, {"UPSTREAM_KEY": UPSTREAM_KEY}) as gateway:
            exercise(gateway)
            for path in ("/metrics", "/health/ready", "/dashboard", "/v1/models", "/v1/reports/spend?by=target"):
                (home / path.replace("/", "_").replace("?", "_")).write_bytes(gateway.get(path).body)
            decisions = [gateway.get(f"/v1/decisions/{row['id']}") for row in gateway.rows("SELECT id FROM decisions")]
            (home / "decisions").write_bytes(b"\n".join(reply.body for reply in decisions))
    return home


def test_no_file_of_the_gateway_holds_what_was_said(exercised: Path) -> None:
    """The database included, in its raw bytes, write-ahead log and all."""
    seen = {path.name: path.read_bytes() for path in exercised.rglob("*") if path.is_file()}
    assert {"output.log", "lowpass.db", "decisions", "_metrics"} <= set(seen)
    found = [(name, canary) for name, data in seen.items() for canary in NOWHERE if canary.encode() in data]
    assert found == []


def test_the_rows_are_there_and_hold_the_session(exercised: Path) -> None:
    assert SESSION.encode() in (exercised / "lowpass.db").read_bytes()
    assert (exercised / "decisions").read_bytes().count(b'"chosen"') > 20
    assert SESSION.encode() not in (exercised / "output.log").read_bytes()


def test_no_error_repeats_the_upstream_s_key(tmp_path: Path, upstream: Upstream) -> None:
    """A provider may quote the key that it refused; the client must not learn it."""
    with (
        canned(QUOTES) as quoting,
        serving(tmp_path, policy(upstream.url, quoting.url), {"UPSTREAM_KEY": UPSTREAM_KEY}) as gateway,
    ):
        for model in QUOTES:
            for stream in (False, True):
                assert UPSTREAM_KEY.encode() not in gateway.chat(model, stream=stream).body
