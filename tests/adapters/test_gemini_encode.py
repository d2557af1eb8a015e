"""What `generateContent` gets for an OpenAI request."""

from typing import Any

import pytest

from adapters.gemini import GeminiAdapter
from adapters.gemini.contents import UNSIGNED
from adapters.gemini.schema import cleaned
from router.errors import ClientError
from router.types.target import Contract, Thinking, Wire
from tests.adapters.translated import BUDGETS, LEVELS, USER, call, sent

ADAPTER = GeminiAdapter()
SAYS_HI = [{"role": "user", "parts": [{"text": "Hi"}]}]
PIXEL = "data:image/png;base64,iVBORw0KGgo="
PING: dict[str, Any] = {"type": "function", "function": {"name": "ping", "description": "Now", "strict": True}}
PING_TOOL: dict[str, Any] = {"functionDeclarations": [{"name": "ping", "description": "Now"}]}


def gemini(body: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return sent(ADAPTER, call(Wire.GEMINI, body, **fields))


@pytest.mark.parametrize(
    ("stream", "path"),
    [
        (False, "/v1beta/models/the-model:generateContent"),
        (True, "/v1beta/models/the-model:streamGenerateContent?alt=sse"),
    ],
)
def test_request_line_and_headers(stream: bool, path: str) -> None:
    request = ADAPTER.encode(call(Wire.GEMINI, {"stream": stream}, stream=stream, headers={"x-team": "a"}))
    assert (request.method, request.path) == ("POST", path)
    assert dict(request.headers) == {"content-type": "application/json", "x-goog-api-key": "k-1", "x-team": "a"}
    assert b'"stream"' not in request.body


def test_smallest_request() -> None:
    assert gemini() == {"contents": SAYS_HI}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({"stop": "END"}, {"stopSequences": ["END"]}, id="stop"),
        pytest.param({"max_tokens": 50}, {"maxOutputTokens": 50}, id="max_tokens"),
        pytest.param(
            {
                "temperature": 1.7,
                "top_p": 0.5,
                "top_k": 4,
                "seed": 7,
                "presence_penalty": 0.1,
                "frequency_penalty": 0.2,
            },
            {
                "temperature": 1.7,
                "topP": 0.5,
                "topK": 4,
                "seed": 7,
                "presencePenalty": 0.1,
                "frequencyPenalty": 0.2,
            },
            id="sampling",
        ),
        pytest.param({"logprobs": True, "top_logprobs": 3}, {"responseLogprobs": True, "logprobs": 3}, id="logprobs"),
        pytest.param({"response_format": {"type": "json_object"}}, {"responseMimeType": "application/json"}, id="json"),
        pytest.param(
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"type": "object", "$schema": "x"}},
                }
            },
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
            id="json_schema",
        ),
        pytest.param(
            {"temperature": 0.5, "generationConfig": {"temperature": 0.1, "mediaResolution": "MEDIA_RESOLUTION_LOW"}},
            {"temperature": 0.5, "mediaResolution": "MEDIA_RESOLUTION_LOW"},
            id="own config",
        ),
    ],
)
def test_generation_config(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert gemini(given) == {"contents": SAYS_HI, "generationConfig": wanted}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({"service_tier": "auto"}, {}, id="tier auto"),
        pytest.param({"service_tier": "default"}, {"serviceTier": "standard"}, id="tier default"),
        pytest.param({"service_tier": "flex"}, {"serviceTier": "flex"}, id="tier flex"),
        pytest.param({"safetySettings": [{"category": "C"}]}, {"safetySettings": [{"category": "C"}]}, id="own"),
        pytest.param(
            {"user": "u", "metadata": {"a": "b"}, "store": True, "parallel_tool_calls": False, "n": 1},
            {},
            id="fields without a counterpart",
        ),
    ],
)
def test_fields(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert gemini(given) == {"contents": SAYS_HI, **wanted}


def test_bounds_of_the_gateway() -> None:
    body = gemini({"max_completion_tokens": 900, "n": 3}, max_output=100, n=3)
    assert body["generationConfig"] == {"maxOutputTokens": 100, "candidateCount": 3}


def _allowed(mode: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": "ping"}}]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "ping"}}, {"mode": "ANY", "allowedFunctionNames": ["ping"]}),
        (_allowed("required"), {"mode": "ANY", "allowedFunctionNames": ["ping"]}),
        (_allowed("auto"), {"mode": "VALIDATED", "allowedFunctionNames": ["ping"]}),
    ],
)
def test_tool_choice(choice: Any, wanted: dict[str, Any]) -> None:
    body = gemini({"tools": [PING], "tool_choice": choice, "toolConfig": {"retrievalConfig": {}}})
    assert body["tools"] == [PING_TOOL]
    assert body["toolConfig"] == {"functionCallingConfig": wanted, "retrievalConfig": {}}


def test_tools_of_geminis_own() -> None:
    assert gemini({"tools": [PING, {"googleSearch": {}}]})["tools"] == [PING_TOOL, {"googleSearch": {}}]


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        pytest.param(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {
                    "pattern": {"type": ["string", "null"], "pattern": "^a", "minLength": 1},
                    "n": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10, "default": 3},
                    "list": {"type": "array", "items": {"const": "x"}, "uniqueItems": True, "maxItems": 2},
                },
                "required": ["n"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {
                    "pattern": {"type": ["string", "null"]},
                    "n": {"type": "integer", "minimum": 1, "maximum": 9},
                    "list": {"type": "array", "items": {"enum": ["x"]}, "maxItems": 2},
                },
                "required": ["n"],
                "additionalProperties": False,
            },
            id="keywords, not property names",
        ),
        pytest.param(
            {"definitions": {"A": {"type": "string"}}, "allOf": [{"$ref": "#/definitions/A"}], "description": "d"},
            {"$defs": {"A": {"type": "string"}}, "$ref": "#/$defs/A"},
            id="references stand alone",
        ),
        pytest.param(
            {"anyOf": [{"type": "string", "format": "date"}, {"type": "number", "exclusiveMinimum": 0}]},
            {"anyOf": [{"type": "string", "format": "date"}, {"type": "number"}]},
            id="any of",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": {"type": "string", "pattern": "a"}},
            {"type": "object", "additionalProperties": {"type": "string"}},
            id="maps",
        ),
    ],
)
def test_schema(schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert cleaned(schema) == wanted
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    declared = gemini({"tools": [tool]})["tools"]
    assert declared == [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": wanted}]}]


@pytest.mark.parametrize(
    ("messages", "system", "contents"),
    [
        pytest.param(
            [{"role": "system", "content": "A"}, *USER, {"role": "developer", "content": "B"}],
            {"parts": [{"text": "A"}, {"text": "B"}]},
            SAYS_HI,
            id="system and developer",
        ),
        pytest.param(
            [*USER, {"role": "assistant", "content": "Yes?"}, *USER, {"role": "user", "content": "there"}],
            None,
            [
                *SAYS_HI,
                {"role": "model", "parts": [{"text": "Yes?"}]},
                {"role": "user", "parts": [{"text": "Hi"}, {"text": "there"}]},
            ],
            id="roles, turns of one role merge",
        ),
        pytest.param(
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "?", "cache_control": {"type": "ephemeral"}},
                        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                        {"type": "image_url", "image_url": {"url": "https://x/y.JPG?size=2"}},
                        {"type": "image_url", "image_url": {"url": "https://x/y"}},
                        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                        {"type": "file", "file": {"filename": "a", "file_data": "data:application/pdf;base64,JVBE"}},
                        {
                            "type": "file",
                            "file": {"file_id": "https://generativelanguage.googleapis.com/v1beta/files/a"},
                        },
                        {"text": "own", "videoMetadata": {"fps": 1}},
                    ],
                }
            ],
            None,
            [
                {
                    "role": "user",
                    "parts": [
                        {"text": "?"},
                        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                        {"fileData": {"fileUri": "https://x/y.JPG?size=2", "mimeType": "image/jpeg"}},
                        {"fileData": {"fileUri": "https://x/y"}},
                        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
                        {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}},
                        {"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/a"}},
                        {"text": "own", "videoMetadata": {"fps": 1}},
                    ],
                }
            ],
            id="parts",
        ),
    ],
)
def test_messages(messages: list[Any], system: Any, contents: list[Any]) -> None:
    body = gemini({"messages": messages})
    assert body.get("systemInstruction") == system
    assert body["contents"] == contents


def _tool_round(extra: dict[str, Any]) -> list[Any]:
    return [
        *USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "a", "arguments": '{"x": 1}'}, **extra},
                {"id": "t2", "type": "function", "function": {"name": "b", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": '{"y": 2}'},
        {
            "role": "tool",
            "tool_call_id": "t2",
            "content": [{"type": "text", "text": "two"}, {"type": "image_url", "image_url": {"url": PIXEL}}],
        },
        {"role": "user", "content": "Go on"},
    ]


@pytest.mark.parametrize(
    ("thinking", "extra", "signature"),
    [
        pytest.param(LEVELS, {"extra_content": {"google": {"thought_signature": "c2ln"}}}, "c2ln", id="signed"),
        pytest.param(BUDGETS, {}, None, id="2.5 asks for none"),
        pytest.param(LEVELS, {}, UNSIGNED, id="made by another model"),
    ],
)
def test_tool_round(thinking: Thinking, extra: dict[str, Any], signature: str | None) -> None:
    signed = {"thoughtSignature": signature} if signature else {}
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    assert gemini({"messages": _tool_round(extra)}, thinking=thinking)["contents"] == [
        *SAYS_HI,
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "t1", "name": "a", "args": {"x": 1}}, **signed},
                {"functionCall": {"id": "t2", "name": "b", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "t1", "name": "a", "response": {"y": 2}}},
                {"functionResponse": {"id": "t2", "name": "b", "response": {"output": "two"}, "parts": [image]}},
            ],
        },
        {"role": "user", "parts": [{"text": "Go on"}]},
    ]


FLASH = Thinking(contract=Contract.TARGET, levels=("none", "low"), tokens=(0, 1_024), minimum=1)
PRO = Thinking(contract=Contract.TARGET, levels=("low", "high"), tokens=(1_024, 24_576), minimum=128)


@pytest.mark.parametrize(
    ("thinking", "fields", "own", "wanted", "stated"),
    [
        (FLASH, {"thinking_budget": 700}, {}, {"thinkingBudget": 700, "includeThoughts": True}, "budget=700"),
        (FLASH, {"effort": "none"}, {}, {"thinkingBudget": 0}, "off"),
        (PRO, {"effort": "none"}, {}, {"thinkingBudget": 128, "includeThoughts": True}, "budget=128"),
        (LEVELS, {"effort": "low"}, {}, {"thinkingLevel": "LOW", "includeThoughts": True}, "effort=low"),
        (
            LEVELS,
            {"thinking_budget": 9_000},
            {"thinkingBudget": 1},
            {"thinkingLevel": "MEDIUM", "includeThoughts": True},
            "effort=medium",
        ),
        (LEVELS, {}, {"thinkingLevel": "HIGH"}, {"thinkingLevel": "HIGH"}, "effort=high"),
        (FLASH, {}, {"thinkingBudget": -1}, {"thinkingBudget": -1}, "budget=-1"),
        (LEVELS, {}, {}, None, "none"),
    ],
)
def test_thinking_is_a_budget_or_a_level(
    thinking: Thinking, fields: dict[str, Any], own: dict[str, Any], wanted: dict[str, Any] | None, stated: str
) -> None:
    given = {"generationConfig": {"thinkingConfig": own}} if own else {}
    asked = call(Wire.GEMINI, given, thinking=thinking, **fields)
    assert sent(ADAPTER, asked).get("generationConfig", {}).get("thinkingConfig") == wanted
    assert ADAPTER.encode(asked).thinking == stated


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": None}, "messages"),
        ({"tools": "ping"}, "tools"),
        ({"generationConfig": "much"}, "generationConfig"),
    ],
)
def test_wrong_type_names_its_place(body: dict[str, Any], place: str) -> None:
    with pytest.raises(ClientError) as raised:
        gemini(body)
    assert (raised.value.status, raised.value.param) == (400, place)


def test_nesting_has_an_end() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
    with pytest.raises(ClientError, match="nested too deeply"):
        gemini({"tools": [tool]})
