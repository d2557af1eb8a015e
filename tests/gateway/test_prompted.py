"""Specialists at a scripted upstream: what leaves in a template, what is learned of them, adapters as targets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gateway.busy import MODEL, Busy, busy
from tests.gateway.running import Gateway, Reply, local, ordered, serving, target, until
from tests.upstream import TEXT, Upstream

MAIL = "jane.roe@mail.example"
KEY = "AKIA" + "IOSFODNN7EXAMPLF"
"""Built here, so that no scanner trips over this repository."""
TEMPLATE = "{{ source or 'English' }}: {{ text }}\n{{ target or 'French' }}:"
PROMPT = {"template": TEMPLATE, "stop": ["\n"]}
TRANSLATION = "Translate to French: Good morning, my friend."
QUESTION = "What is the capital of France?"
ADAPTERS = ("legal-lora", "support-lora")
TEXTS: dict[str, Any] = {"capabilities": ["completions"], "max_output": 64, "prompt": PROMPT}


def asked(url: str, behaviour: str, **row: Any) -> dict[str, Any]:
    prompt = row.pop("prompt")
    return {**target(url, behaviour, **row), "prompt": prompt}


def policy(url: str, spec: str) -> dict[str, Any]:
    translates = {"tasks": ["translation"], "pass_rate": 0.2}
    cheap, dear = {"input": 0.01, "output": 0.02}, {"input": 10, "output": 20}
    model = {"name": MODEL, "provider": "vllm", "context": 8_000, "max_output": 500, "capabilities": ["chat"]}
    engine = {"model": {**model, "price": {"input": 1, "output": 2}}, "engine": spec, "retries": 0}
    learned = {"kind": "cost_of_pass", "targets": ["able", "special"]}
    return {
        "version": 1,
        "targets": {
            "texts": asked(url, "normal@texts", region="us", **TEXTS),
            "wild": asked(url, "normal@wild", **(TEXTS | {"prompt": {"template": "{{ 9 // (text | length - 1) }}"}})),
            "home": local(url, "normal@home"),
            "able": target(url, "normal@able", price=dear),
            "special": {**target(url, "normal@special", price=cheap), **translates},
            "legal": {**engine, "adapter": ADAPTERS[0], "tasks": ["summary"]},
            "support": {**engine, "adapter": ADAPTERS[1]},
            "base": engine,
        },
        "routes": {
            "learned": {"strategy": learned, "failure_cost_usd": 0.1},
            "falls": ordered("wild", "home"),
            "adapted": ordered("legal", "support"),
        },
        "sensitivity": {
            "default": "internal",
            "classes": {
                "internal": {},
                "people": {"regions": ["eu"], "redact": "needed"},
                "secret": {"local_only": True},
            },
            "detectors": [{"kind": "identifiers", "class": "people"}, {"kind": "secrets", "class": "secret"}],
        },
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[Busy]:
    with busy() as server:
        yield server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, engine: Busy, upstream_server: Upstream) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("prompted")
    spec = engine.spec(home, adapters=ADAPTERS)
    with serving(home, policy(upstream_server.url, spec)) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: Gateway, upstream: Upstream) -> Iterator[Gateway]:
    yield served
    served.check_books()


def answered(reply: Reply) -> str:
    assert reply.status == 200, reply.body
    said: str = reply.json["choices"][0]["message"]["content"]
    return said


def test_a_template_leaves_in_place_of_the_chat(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("texts", TRANSLATION, temperature=0.5, user="somebody", metadata={"tags": "a"})
    assert answered(reply) == "".join(TEXT)
    assert reply.json["object"] == "chat.completion"
    assert upstream.last.path == "/openai/v1/completions"
    assert upstream.last.json == {
        "model": "normal@texts",
        "prompt": "English: Good morning, my friend.\nFrench:",
        "max_tokens": 64,
        "temperature": 0.5,
        "user": "somebody",
        "stop": ["\n"],
    }


def test_what_a_target_may_not_see_is_not_in_its_prompt(gateway: Gateway, upstream: Upstream) -> None:
    answered(gateway.chat("texts", f"Translate to French: Write to {MAIL} today."))
    prompt = upstream.last.json["prompt"]
    assert prompt.startswith("English: Write to ")
    assert MAIL not in prompt
    before = len(upstream.requests)
    refused = gateway.chat("texts", f"Translate to French: the key is {KEY}.")
    assert (refused.status, refused.error["targets"][0]["reason"]) == (403, "data_class")
    assert len(upstream.requests) == before


def test_the_door_reads_what_a_template_makes_of_a_text(tmp_path: Path, upstream_server: Upstream) -> None:
    """What no detector sees in the request, and a template puts together, stays in."""
    half = len(KEY) // 2
    home = local(upstream_server.url, "normal@home")
    joined = {"template": "{% for message in messages | reverse %}{{ message.content }}{% endfor %}"}
    row = asked(upstream_server.url, "normal@joined", **(TEXTS | {"prompt": joined}))
    classes = {"internal": {}, "secret": {"local_only": True}}
    document = {
        "version": 1,
        "targets": {"joins": row, "plain": target(upstream_server.url, "normal@plain"), "home": home},
        "routes": {"auto": ordered("joins")},
        "sensitivity": {
            "default": "internal",
            "classes": classes,
            "detectors": [{"kind": "secrets", "class": "secret"}],
        },
    }
    with serving(tmp_path, document) as gateway:
        messages = [{"role": "user", "content": part} for part in (KEY[half:], KEY[:half])]
        answered(gateway.post("/v1/chat/completions", {"model": "plain", "messages": messages}))
        before = len(upstream_server.requests)
        refused = gateway.post("/v1/chat/completions", {"model": "auto", "messages": messages})
        assert (refused.status, refused.error["code"]) == (403, "no_eligible_target")
        assert len(upstream_server.requests) == before


def test_a_template_that_fails_falls_back_and_quotes_nothing(gateway: Gateway) -> None:
    reply = gateway.chat("falls", "x")
    assert answered(reply)
    row = gateway.settled(reply.headers["x-request-id"])
    assert [attempt["target"] for attempt in row["attempts"]][-1] == "home"
    assert row["attempts"][0]["outcome"] == "bad_response"


def test_a_specialist_that_is_told_to_be_right_gets_its_kind_of_request_and_no_other(gateway: Gateway) -> None:
    def chosen(text: str) -> tuple[str, Reply]:
        reply = gateway.chat("learned", text)
        answered(reply)
        return reply.headers["x-lowpass-model"], reply

    assert chosen(TRANSLATION)[0] == "able"
    for number in range(30):
        for model, passed in (("special", True), ("able", False)):
            reply = gateway.chat(model, f"Translate to French: Good morning, number {number}.")
            told = gateway.post("/v1/feedback", {"id": reply.headers["x-lowpass-decision"], "passed": passed})
            assert told.status == 200
    until(lambda: chosen(TRANSLATION)[0] == "special", 15)
    name, reply = chosen(QUESTION)
    assert name == "able"
    decision = gateway.get(f"/v1/decisions/{reply.headers['x-lowpass-decision']}").json
    assert [(one["target"], one["reason"]) for one in decision["dropped"]] == [("special", "specialist")]


def test_adapters_are_targets_of_their_own_on_one_engine(gateway: Gateway, engine: Busy) -> None:
    for name, model in (("legal", ADAPTERS[0]), ("support", ADAPTERS[1]), ("base", MODEL)):
        reply = gateway.chat(name, headers={"x-lowpass-task": "summary"})
        answered(reply)
        assert reply.headers["x-lowpass-model"] == name
        assert engine.model == model
        (attempt,) = gateway.settled(reply.headers["x-request-id"])["attempts"]
        assert attempt["target"] == name
    assert gateway.chat("adapted", QUESTION).headers["x-lowpass-model"] == "support"
    told = gateway.post("/v1/feedback", {"id": gateway.chat("support").headers["x-lowpass-decision"], "passed": True})
    assert told.status == 200
    assert {row["target"] for row in gateway.rows("SELECT target FROM outcomes")} >= {"support"}


def test_metrics_name_each(gateway: Gateway) -> None:
    answered(gateway.chat("legal", headers={"x-lowpass-task": "summary"}))
    assert b'lowpass_attempts_total{outcome="ok",target="legal"}' in gateway.get("/metrics").body
    assert msgspec.json.decode(gateway.get("/v1/models/legal").body)["id"] == "legal"
