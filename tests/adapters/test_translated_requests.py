"""What Anthropic's Messages API and Gemini's `generateContent` get for an OpenAI request: rows of requests.yaml."""

from typing import Any

import pytest

from router.errors import ClientError
from router.types.target import Contract, Quirks, Thinking, Wire
from tests.adapters.calls import ADAPTERS, HI, LEVELS, call, sent, table
from tests.tables import each_row

PLAIN: dict[Wire, dict[str, Any]] = {
    Wire.ANTHROPIC: {
        "model": "served-1",
        "max_tokens": 8_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    },
    Wire.GEMINI: {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}
THINKING = {
    None: Thinking(),
    "levels": LEVELS,
    "budgets": Thinking(contract=Contract.TARGET, minimum=1_024),
    "stoppable": Thinking(contract=Contract.TARGET, levels=("none", "low"), tokens=(0, 1_024), minimum=1),
    "unstoppable": Thinking(contract=Contract.TARGET, levels=("low", "high"), tokens=(1_024, 24_576), minimum=128),
}
both_wires = each_row("wire", PLAIN)


@both_wires
@each_row("row", table("requests.yaml"), ids=lambda row: row["name"])
def test_requests(wire: Wire, row: dict[str, Any]) -> None:
    if wire not in row:
        return
    quirks, thinking = Quirks(refuses=tuple(row.get("refuses", ()))), THINKING[row.get("thinking")]
    made = call({**HI, **row.get("body", {})}, wire=wire, quirks=quirks, thinking=thinking, **row.get("call", {}))
    assert sent(made) == {**PLAIN[wire], **row[wire]}
    assert ADAPTERS[wire].encode(made).thinking == row.get("states", "none")


@each_row(
    "wire, stream, path, headers",
    [
        (Wire.ANTHROPIC, False, "/v1/messages", {"anthropic-version": "2023-06-01", "x-api-key": "k"}),
        (Wire.GEMINI, False, "/v1beta/models/served-1:generateContent", {"x-goog-api-key": "k"}),
        (Wire.GEMINI, True, "/v1beta/models/served-1:streamGenerateContent?alt=sse", {"x-goog-api-key": "k"}),
    ],
)
def test_request_line_and_headers(wire: Wire, stream: bool, path: str, headers: dict[str, str]) -> None:
    request = ADAPTERS[wire].encode(call(wire=wire, stream=stream, headers={"x-team": "a"}))
    assert (request.method, request.path) == ("POST", path)
    assert dict(request.headers) == {"content-type": "application/json", "x-team": "a", **headers}


@each_row(
    "wire, body, place",
    [
        *((wire, {"messages": [{"role": "user", "content": 3}]}, "messages[0].content") for wire in PLAIN),
        *((wire, {"messages": None}, "messages") for wire in PLAIN),
        *((wire, {"tools": "ping"}, "tools") for wire in PLAIN),
        (Wire.ANTHROPIC, {"thinking": "much"}, "thinking"),
        (Wire.GEMINI, {"generationConfig": "much"}, "generationConfig"),
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
