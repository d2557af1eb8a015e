"""What goes to a provider: the same request on every wire (requests.yaml), thinking, keeping, training and place."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from adapters import catalog
from adapters.openai import PATHS
from router.errors import ClientError
from router.types.request import Endpoint
from router.types.target import Contract, Quirks, Terms, Thinking, ThinkingField, Wire
from tests.adapters.calls import ADAPTER, ADAPTERS, HI, LEVELS, call, claude, sent
from tests.tables import data, each_row

A, G, OPENAI = Wire.ANTHROPIC, Wire.GEMINI, Wire.OPENAI_COMPATIBLE
E, C, F = Endpoint, Contract, ThinkingField
BLOCK = {"type": "text", "text": "Hi"}
PLAIN: dict[Wire, dict[str, Any]] = {
    A: {"model": "served-1", "max_tokens": 8_000, "messages": [{"role": "user", "content": [BLOCK]}]},
    G: {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}
THINKING = {
    None: Thinking(),
    "levels": LEVELS,
    "budgets": Thinking(contract=C.TARGET, minimum=1_024),
    "stoppable": Thinking(contract=C.TARGET, levels=("none", "low"), tokens=(0, 1_024), minimum=1),
    "unstoppable": Thinking(contract=C.TARGET, levels=("low", "high"), tokens=(1_024, 24_576), minimum=128),
}
both_wires = each_row("wire", PLAIN)


@both_wires
@each_row("row", data(__file__, "requests.yaml"), ids=lambda row: row["name"])
def test_requests_are_translated(wire: Wire, row: dict[str, Any]) -> None:
    if wire not in row:
        return
    quirks, thinking = Quirks(refuses=frozenset(row.get("refuses", ()))), THINKING[row.get("thinking")]
    made = call({**HI, **row.get("body", {})}, wire=wire, quirks=quirks, thinking=thinking, **row.get("call", {}))
    assert sent(made) == {**PLAIN[wire], **row[wire]}
    assert ADAPTERS[wire].encode(made).thinking == row.get("states", "none")


VERSION = {"anthropic-version": "2023-06-01"}
GEMINI = "/v1beta/models/served-1:"


@each_row(
    "wire, fields, path, headers",
    [
        (A, {}, "/v1/messages", {"x-api-key": "k", **VERSION}),
        (G, {}, f"{GEMINI}generateContent", {"x-goog-api-key": "k"}),
        (G, {"stream": True}, f"{GEMINI}streamGenerateContent?alt=sse", {"x-goog-api-key": "k"}),
        *((OPENAI, {"endpoint": endpoint}, PATHS[endpoint], {"authorization": "Bearer k"}) for endpoint in PATHS),
    ],
)
def test_request_line_and_headers(wire: Wire, fields: dict[str, Any], path: str, headers: dict[str, str]) -> None:
    made = call(wire=wire, headers={"X-Team" if wire is OPENAI else "x-team": "a"}, **fields)
    request = ADAPTERS[wire].encode(made)
    assert (request.method, request.path, request.request_id) == ("POST", path, "r1" if wire is OPENAI else "")
    plain = {"content-type": "application/json", "x-team": "a"}
    assert dict(request.headers) == plain | headers
    keyless = ADAPTERS[wire].encode(replace(made, target=replace(made.target, api_key=None)))
    assert dict(keyless.headers) == plain | (VERSION if wire is A else {})


@each_row(
    "wire, body, place",
    [
        *((wire, {"messages": [{"role": "user", "content": 3}]}, "messages[0].content") for wire in PLAIN),
        *((wire, {"messages": None}, "messages") for wire in PLAIN),
        *((wire, {"tools": "ping"}, "tools") for wire in PLAIN),
        (A, {"thinking": "much"}, "thinking"),
        (G, {"generationConfig": "much"}, "generationConfig"),
    ],
)
def test_wrong_type_names_its_place(wire: Wire, body: dict[str, Any], place: str) -> None:
    with pytest.raises(ClientError) as raised:
        sent(call({**HI, **body}, wire=wire))
    assert (raised.value.status, raised.value.param) == (400, place)


@both_wires
def test_nesting_has_an_end(wire: Wire) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
    with pytest.raises(ClientError, match="nested too deeply"):
        sent(call({**HI, "tools": [tool]}, wire=wire))


ODD = b'{ "a" : [1.0, 1e2,  "\\u00e9\\/"] }'


def test_unknown_fields_keep_their_very_bytes() -> None:
    asked = call()
    asked.body["x_own"] = Raw(ODD)
    assert ODD in ADAPTER.encode(asked).body


def counted(**more: Any) -> dict[str, Any]:
    return {"stream": True, "stream_options": {"include_usage": True, **more}}


NEW = Quirks(max_tokens_field="max_completion_tokens")
RESPONSES, VECTORS = {"endpoint": E.RESPONSES}, {"input": "x", "dimensions": 8}
SEED = {"quirks": Quirks(refuses=frozenset({"seed"}))}
SEEDED = {"temperature": 1, "seed": 1, "metadata": {"session_id": "s"}}
AFTER = {"role": "assistant", "content": "Hi"}
BEFORE = AFTER | {"reasoning_content": "hm"}
ASKED = {"role": "user", "content": 'No "reasoning_content"?'}
FORGETS = Quirks(refuses=frozenset({"messages.reasoning_content"}))


@each_row(
    "body, fields, expected",
    [
        ({}, {"max_output": 9}, {"max_tokens": 9}),
        ({"max_tokens": 50}, {"max_output": 9}, {"max_tokens": 9}),
        ({"max_completion_tokens": 50}, {}, {"max_tokens": 50}),
        ({"max_completion_tokens": 50}, {"quirks": NEW, "max_output": 9}, {"max_completion_tokens": 9}),
        ({"max_tokens": 50}, {"quirks": NEW}, {"max_completion_tokens": 50}),
        ({"max_completion_tokens": None, "max_tokens": 3}, {}, {"max_tokens": 3}),
        ({"max_output_tokens": 50}, {**RESPONSES, "max_output": 9}, {"max_output_tokens": 9, "store": False}),
        ({"store": True}, RESPONSES, {"store": False}),
        ({"store": True}, {}, {"store": True}),
        ({"max_tokens": 50}, {"endpoint": E.COMPLETIONS, "quirks": NEW}, {"max_tokens": 50}),
        ({"stream": True, "stream_options": {"include_usage": False, "x": 1}}, {"stream": True}, counted(x=1)),
        ({"stream": True, "stream_options": None}, {"stream": True}, counted()),
        ({"stream": True}, {"stream": True, "quirks": Quirks(stream_usage=False)}, {"stream": True}),
        ({"stream": True}, {"stream": True, **RESPONSES}, {"stream": True, "store": False}),
        (counted(), {}, {}),
        (
            SEEDED,
            {"quirks": Quirks(refuses=frozenset({"seed"}))},
            {name: SEEDED[name] for name in ("temperature", "metadata")},
        ),
        (VECTORS, {"endpoint": E.EMBEDDINGS, "max_output": 9}, VECTORS),
        # thoughts that a provider does not take back stay here
        ({"messages": [ASKED, BEFORE]}, {}, {"messages": [ASKED, BEFORE]}),
        ({"messages": [ASKED, BEFORE]}, {"quirks": FORGETS}, {"messages": [ASKED, AFTER]}),
    ],
)
def test_what_changes_in_the_body(body: dict[str, Any], fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sent(call(body, **fields)) == {"model": "served-1", **expected}


def test_a_strict_target_refuses_what_its_wire_lacks_and_names_it() -> None:
    for wire, quirks in ((Wire.ANTHROPIC, None), (Wire.OPENAI_COMPATIBLE, Quirks(refuses=frozenset({"seed", "n"})))):
        lacking = call({**HI, "seed": 7}, wire=wire, quirks=quirks)
        assert ADAPTERS[wire].encode(lacking).dropped == ("seed",)
        with pytest.raises(ClientError, match="does not take `seed`") as caught:
            ADAPTERS[wire].encode(replace(lacking, target=replace(lacking.target, rejects=True)))
        assert (caught.value.status, caught.value.param) == (400, "seed")
        ADAPTERS[wire].encode(replace(call(HI, wire=wire, quirks=quirks), target=replace(lacking.target, rejects=True)))


# Thinking: the policy's effort wins, the budget caps, nothing is dropped silently


CONTROLS = data(__file__, "controls.yaml")
KINDS = {
    "three": Thinking(contract=C.LEVEL, levels=("none", "low", "high"), tokens=(0, 1_000, 9_000)),
    "always levels": Thinking(contract=C.LEVEL, levels=("low", "high"), tokens=(1_000, 9_000)),
    "unsized": Thinking(contract=C.LEVEL, levels=("low", "high")),
    "target": Thinking(contract=C.TARGET, minimum=1_024),
    "switch": Thinking(contract=C.SWITCH, tokens=(3_000,)),
    **{"exact": Thinking(contract=C.EXACT), "always": Thinking(contract=C.ALWAYS_ON), "none": Thinking()},
}
FIELD = {C.LEVEL: F.REASONING_EFFORT, C.EXACT: F.TOKEN_BUDGET, C.TARGET: F.REASONING, C.SWITCH: F.THINKING_TYPE}


@each_row("kind, policy, asked, budget, stated", CONTROLS["stated"])
def test_what_is_stated_to_be_applied(
    kind: str, policy: str | None, asked: str | None, budget: int | None, stated: str
) -> None:
    quirks = Quirks(thinking_field=FIELD.get(KINDS[kind].contract, F.NONE))
    made = call(thinking=KINDS[kind], quirks=quirks, effort=policy, asked_effort=asked, thinking_budget=budget)
    assert ADAPTER.encode(made).thinking == stated


SHOWN, CAP = {"include_thoughts": True}, {"thinking_budget": 9}


def google(config: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"extra_body": {"google": {"thinking_config": config, **more}}}


def template(thinks: bool, **more: object) -> dict[str, Any]:
    return {"chat_template_kwargs": {"enable_thinking": thinks, **more}}


def controlled(field: ThinkingField, kind: str, body: dict[str, Any], **asked: Any) -> dict[str, Any]:
    return sent(call({**HI, **body}, quirks=Quirks(thinking_field=field), thinking=KINDS[kind], **asked))


@each_row("field, kind, asked, expected", CONTROLS["fields"])
def test_the_fields_that_a_provider_understands(
    field: str, kind: str, asked: dict[str, Any], expected: dict[str, object]
) -> None:
    body = controlled(F(field), kind, {"reasoning_effort": "high"}, **asked)
    assert body == {"model": "served-1", **HI, **expected}


@each_row(
    "field, given, expected",
    [
        (F.REASONING, {"reasoning": {"effort": "high", "exclude": True}}, {"exclude": True, "max_tokens": 9}),
        (F.TOKEN_BUDGET, template(False, tone=1), {"enable_thinking": True, "tone": 1}),
        (F.THINKING_CONFIG, google({"thinking_level": "high", **SHOWN}, x=1), google(SHOWN | CAP, x=1)["extra_body"]),
    ],
)
def test_what_else_the_client_put_beside_the_control_stays(
    field: ThinkingField, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    (name,) = given
    assert controlled(field, "exact", given, thinking_budget=9)[name] == expected


def test_responses_say_it_in_their_own_field() -> None:
    quirks = Quirks(responses=True, thinking_field=F.REASONING_EFFORT)
    body = {"input": "Hi", "reasoning": {"effort": "high", "summary": "auto"}}
    asked = call(body, quirks=quirks, thinking=KINDS["three"], asked_effort="medium", endpoint=E.RESPONSES)
    assert sent(asked)["reasoning"] == {"summary": "auto", "effort": "low"}
    plain = call(body, quirks=quirks, asked_effort="medium", endpoint=E.RESPONSES)
    assert "reasoning" not in sent(plain)


def test_a_control_that_the_wire_has_no_words_for_is_not_claimed() -> None:
    asked = call(quirks=Quirks(thinking_field=F.REASONING_EFFORT), thinking=KINDS["exact"], thinking_budget=9)
    assert ADAPTER.encode(asked).thinking == "none"


# Keeping, training and place


PROVIDERS = catalog.shipped().providers


def kept(body: dict[str, Any], provider: str, endpoint: Endpoint = E.CHAT, *, private: bool) -> dict[str, Any]:
    return sent(call({**HI, **body}, quirks=PROVIDERS[provider].quirks, endpoint=endpoint, private=private))


@each_row("provider", ["openai", "azure"])
@each_row("body", [{}, {"store": True}, {"store": None}])
def test_a_private_chat_is_not_stored(provider: str, body: dict[str, Any]) -> None:
    assert kept(body, provider, private=True)["store"] is False
    assert kept(body, provider, private=False).get("store") == body.get("store")


def test_where_nothing_can_be_stored_nothing_is_said_and_no_cache_is_a_longer_memory() -> None:
    for endpoint in (E.COMPLETIONS, E.EMBEDDINGS):
        assert "store" not in kept({}, "openai", endpoint, private=True)
    body = {"prompt_cache_retention": "24h"}
    assert kept(body, "openai", private=False).items() >= body.items()
    assert "prompt_cache_retention" not in kept(body, "openai", private=True)


@each_row("endpoint", [E.CHAT, E.COMPLETIONS, E.EMBEDDINGS])
@each_row("own, joined", data(__file__, "openrouter_wishes.yaml"))
def test_openrouter_is_asked_for_providers_that_keep_nothing(endpoint: Endpoint, own: object, joined: Any) -> None:
    """The client's own wishes stay, unless they loosen ours."""
    body = {} if own is None else {"provider": own}
    strict = {**joined, "data_collection": "deny", "zdr": True}
    assert kept(body, "openrouter", endpoint, private=True)["provider"] == strict
    assert kept(body, "openrouter", endpoint, private=False).get("provider") == own


@each_row(
    "region, terms, own, geo",
    [
        ("us", {}, None, "us"),
        ("US", {}, "global", "us"),
        ("", {}, None, None),
        ("", {}, "us", "us"),
        ("us", {"terms": Terms()}, None, None),
        ("us", {"terms": Terms()}, "global", None),
    ],
)
def test_claude_is_asked_for_the_region_that_its_answer_will_state(
    region: str, terms: dict[str, Terms], own: str | None, geo: str | None
) -> None:
    """A client can't move a target that stands in a region."""
    body = {} if own is None else {"inference_geo": own}
    assert sent(claude(region, {**HI, **body}, **terms)).get("inference_geo") == geo
