"""Specialists: what leaves in a template, what is learned of them, adapters as targets; and the shipped example."""

from collections.abc import Iterator
from typing import Any

import pytest

from router.testing.upstream import TEXT
from tests.gateway import running
from tests.gateway.busy import MODEL, Busy
from tests.gateway.running import CHAT, Gateway, Reply, explained, local, ordered, serving, target, tried, until, user
from tests.tables import each_row

server = Busy
MAIL = "jane.roe@mail.example"
KEY = "AKIA" + "IOSFODNN7EXAMPLF"
"""Built here, so that no scanner trips over this repository."""
PROMPT = {"template": "{{ source or 'English' }}: {{ text }}\n{{ target or 'French' }}:", "stop": ["\n"]}
JOINED = {"template": "{% for message in messages | reverse %}{{ message.content }}{% endfor %}"}
HELLO = "Good morning, my friend."
FRENCH = f"Translate to French: {HELLO}"
QUESTION = "What is the capital of France?"
ADAPTERS = ("legal-lora", "support-lora")


def asked(url: str, behaviour: str, prompt: dict[str, Any], **row: Any) -> dict[str, Any]:
    return {**target(url, behaviour, capabilities=["completions"], max_output=64, **row), "prompt": prompt}


def policy(url: str, spec: str) -> dict[str, Any]:
    model = {"name": MODEL, "provider": "vllm", "context": 8_000, "max_output": 500, "capabilities": ["chat"]}
    engine = {"model": {**model, "price": {"input": 1, "output": 2}}, "engine": spec, "retries": 0}
    special = target(url, "normal@special", price={"input": 0.01, "output": 0.02})
    learned = {"kind": "cost_of_pass", "targets": ["able", "special"]}
    classes = {"internal": {}, "people": {"regions": ["eu"], "redact": "needed"}, "secret": {"local_only": True}}
    detectors = [{"kind": "identifiers", "class": "people"}, {"kind": "secrets", "class": "secret"}]
    return {
        "version": 1,
        "targets": {
            "texts": asked(url, "normal@texts", PROMPT, region="us"),
            "wild": asked(url, "normal@wild", {"template": "{{ 9 // (text | length - 1) }}"}),
            "joins": asked(url, "normal@joined", JOINED),
            "home": local(url, "normal@home"),
            "able": target(url, "normal@able", price={"input": 10, "output": 20}),
            "special": {**special, "tasks": ["translation"], "pass_rate": 0.2},
            "legal": {**engine, "adapter": ADAPTERS[0], "tasks": ["summary"]},
            "support": {**engine, "adapter": ADAPTERS[1]},
            "base": engine,
        },
        "routes": {
            "learned": {"strategy": learned, "failure_cost_usd": 0.1, "exploration": {"share": 0}},
            "falls": ordered("wild", "home"),
            "joined": ordered("joins"),
            "adapted": ordered("legal", "support"),
        },
        "sensitivity": {"classes": classes, "detectors": detectors},
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream_server: Busy) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("specialists")
    with serving(home, policy(upstream_server.url, upstream_server.spec(home, adapters=ADAPTERS))) as gateway:
        ready(gateway)
        yield gateway


def ready(gateway: Gateway) -> None:
    until(lambda: {row["status"] for row in gateway.get("/health/ready").json["engines"]} == {"ready"})


def answered(reply: Reply) -> str:
    assert reply.status == 200, reply.body
    return str(reply.json["choices"][0]["message"]["content"])


def test_a_template_leaves_in_place_of_the_chat(gateway: Gateway, upstream: Busy) -> None:
    reply = gateway.chat("texts", FRENCH, temperature=0.5, user="somebody", metadata={"tags": "a"})
    assert answered(reply) == "".join(TEXT)
    assert reply.json["object"] == "chat.completion"
    assert upstream.posts[-1].path == "/openai/v1/completions"
    fields = {"model": "normal@texts", "max_tokens": 64, "temperature": 0.5, "user": "somebody", "stop": ["\n"]}
    assert upstream.posts[-1].json == {**fields, "prompt": f"English: {HELLO}\nFrench:"}


def test_what_a_target_may_not_see_is_not_in_its_prompt(gateway: Gateway, upstream: Busy) -> None:
    answered(gateway.chat("texts", f"Translate to French: Write to {MAIL} today."))
    (request,) = upstream.posts
    assert request.json["prompt"].startswith("English: Write to ")
    assert MAIL not in request.json["prompt"]
    refused = gateway.chat("texts", f"Translate to French: the key is {KEY}.")
    assert (refused.status, refused.error["targets"][0]["reason"]) == (403, "data_class")
    assert upstream.posts == [request]


def test_the_door_reads_what_a_template_makes_of_a_text(gateway: Gateway, upstream: Busy) -> None:
    """What no detector sees in the request, and a template puts together, stays in."""
    messages = user(KEY[len(KEY) // 2 :]) + user(KEY[: len(KEY) // 2])
    answered(gateway.post(CHAT, {"model": "able", "messages": messages}))
    refused = gateway.post(CHAT, {"model": "joined", "messages": messages})
    assert (refused.status, refused.error["code"], len(upstream.posts)) == (403, "no_eligible_target", 1)


def test_a_template_that_fails_falls_back_and_quotes_nothing(gateway: Gateway) -> None:
    reply = gateway.chat("falls", "x")
    assert answered(reply)
    assert tried(gateway.settled(reply.id)) == [("wild", "bad_response"), ("home", "ok")]


def test_a_specialist_that_is_learned_to_be_right_gets_its_kind_of_request_and_no_other(gateway: Gateway) -> None:
    def ask(text: str) -> Reply:
        answered(reply := gateway.chat("learned", text))
        return reply

    assert ask(FRENCH).headers["x-lowpass-model"] == "able"
    for number in range(45):
        for model, passed in (("special", True), ("able", False)):
            reply = gateway.chat(model, f"Translate to French: Good morning, number {number}.")
            assert gateway.post("/v1/feedback", {"id": reply.id, "passed": passed}).status == 200
    until(lambda: ask(FRENCH).headers["x-lowpass-model"] == "special")
    reply = ask(QUESTION)
    assert reply.headers["x-lowpass-model"] == "able"
    dropped = gateway.get(f"/v1/decisions/{reply.id}").json["dropped"]
    assert [(row["target"], row["reason"]) for row in dropped] == [("special", "specialist")]


def test_adapters_are_targets_of_their_own_on_one_engine(gateway: Gateway, upstream: Busy) -> None:
    for name, model in (("legal", ADAPTERS[0]), ("support", ADAPTERS[1]), ("base", MODEL)):
        answered(reply := gateway.chat(name, headers={"x-lowpass-task": "summary"}))
        assert (reply.headers["x-lowpass-model"], upstream.models[-1]) == (name, model)
        assert tried(gateway.settled(reply.id)) == [(name, "ok")]
    assert gateway.chat("adapted", QUESTION).headers["x-lowpass-model"] == "support"
    assert gateway.post("/v1/feedback", {"id": gateway.chat("support").id, "passed": True}).status == 200
    assert ("support",) in gateway.values("SELECT target FROM outcomes")
    assert b'lowpass_attempts_total{outcome="ok",target="legal"}' in gateway.get("/metrics").body
    assert gateway.get("/v1/models/legal").json["id"] == "legal"


# The shipped example: two engines on the CPU, one that chats and one that only completes texts. What small models say
# is for none to promise: who was asked, how, and what became of it is.


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    example = running.ROOT / "policies" / "examples" / "specialists.yaml"
    with serving(tmp_path_factory.mktemp("shipped"), example.read_text("utf-8")) as gateway:
        ready(gateway)
        yield gateway
        gateway.check_books()


def ask(gateway: Gateway, model: str, text: str, **fields: Any) -> tuple[str, str, dict[str, Any], dict[str, str]]:
    """The answer, who gave it, its row in the ledger, and who could not be asked for which reason."""
    with gateway.client() as client:
        raw = client.chat.completions.with_raw_response.create(
            model=model, messages=user(text), max_tokens=24, **fields
        )
    answer = raw.parse()
    message = answer.choices[0].message
    assert (answer.object, answer.model, message.role) == ("chat.completion", model, "assistant")
    dropped = gateway.get(f"/v1/decisions/{raw.headers['x-lowpass-decision']}").json["dropped"]
    assert {row["reason"] for row in dropped} <= {"specialist"}
    row = gateway.settled(raw.headers["x-request-id"])
    why = {row["target"]: row["detail"] for row in dropped}
    return message.content or "", raw.headers["x-lowpass-model"], row, why


def test_a_translation_goes_to_the_specialist_and_comes_back_as_a_chat(shipped: Gateway) -> None:
    text, model, row, dropped = ask(shipped, "auto", FRENCH)
    assert (model, set(dropped)) == ("translator", {"finder"})
    assert text == text.lstrip() != ""
    assert not any(word in text for word in ("English:", "French:", "Translation", "{{", "\n"))
    assert (row["task"], row["status"], row["state"]) == ("translation", 200, "settled")
    assert tried(row) == [("translator", "ok")]
    assert row["attempts"][0]["input_uncached"] + row["attempts"][0]["cache_read"] > 100  # its examples
    assert row["cost"] > 0


FACTUAL = {"translator": "is for translation", "finder": "is for extraction"}
BOTH = {name: f"{purpose}, and this looks like factual" for name, purpose in FACTUAL.items()}
SAID = {"extra_headers": {"x-lowpass-task": "translation"}}


@each_row(
    "route, question, fields, model, task, why",
    [
        ("auto", QUESTION, {}, "chat", "factual", BOTH),
        ("translate", HELLO, {}, "translator", "", {}),
        ("auto", HELLO, SAID, "translator", "translation", None),
        ("auto", FRENCH, {"metadata": {"lowpass_task": "chat"}}, "chat", "chat", None),
    ],
)
def test_what_is_wanted_is_seen_or_said_by_route_and_caller(
    shipped: Gateway, route: str, question: str, fields: Any, model: str, task: str, why: dict[str, str] | None
) -> None:
    text, served, row, dropped = ask(shipped, route, question, **fields)
    assert (served, row["attempts"][0]["target"], bool(text)) == (model, model, True)
    assert task in ("", row["task"])
    assert why in (None, dropped)


def test_what_no_target_is_for_or_can_do_is_refused(shipped: Gateway) -> None:
    for fields in ({"n": 2}, {"logprobs": True}, {"response_format": {"type": "json_object"}}):
        refused = shipped.chat("translate", FRENCH, **fields)  # which only chats can do
        assert (refused.status, refused.error["targets"][0]["reason"]) == (403, "capability")
    refused = shipped.chat("translate", FRENCH, {"x-lowpass-task": "summary"})
    assert (refused.status, refused.error["code"]) == (403, "no_eligible_target")
    assert "is for translation, and this is summary" in refused.body.decode()
    refused = shipped.chat("auto", FRENCH, {"x-lowpass-task": "translating"})
    assert (refused.status, refused.error["param"]) == (400, "x-lowpass-task")
    assert "translation" in refused.error["message"]


def test_a_stream_is_a_chat_s_and_its_usage_is_counted(shipped: Gateway) -> None:
    options: Any = {"max_tokens": 24, "stream": True, "stream_options": {"include_usage": True}}
    with shipped.client() as client:
        chunks = list(client.chat.completions.create(model="translate", messages=user(FRENCH), **options))
    *pieces, last = chunks
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert pieces[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
    assert text == text.lstrip() != ""
    assert pieces[-1].choices[0].finish_reason in ("stop", "length")
    assert last.usage.prompt_tokens > 100


def test_the_responses_endpoint_works_as_chat_does(shipped: Gateway) -> None:
    with shipped.client() as client:
        answer = client.responses.create(model="extract", input="Anna Meyer wrote on 3 March.")
    assert answer.output_text == answer.output_text.lstrip() != ""


def test_explain_tells_why_and_models_lists_them(shipped: Gateway) -> None:
    names = {model["id"] for model in shipped.get("/v1/models").json["data"]}
    assert {"chat", "translator", "finder", "auto", "translate", "extract"} <= names
    _, table = explained(shipped, {"model": "auto", "messages": user("Tell me a joke.")})
    assert "is for translation, and this looks like" in table
