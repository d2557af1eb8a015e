"""How the gateway ends a stream: in its wire's own words, with what it cost and why."""

from typing import Any

import msgspec
from msgspec import Raw

from router.types.call import Call
from router.types.request import Endpoint

STOPPED = "budget_exceeded"
"""Error code in the row of a request whose stream was ended at the limit of its budget."""
PAST_CAP = "cap_exceeded"
"""Error code in the row of a request whose target wrote on past its cap on output tokens."""
MESSAGES = {
    STOPPED: "The budget of this request is used up: the answer ends here.",
    PAST_CAP: "The upstream wrote on past the cap on output tokens: the answer ends here.",
}


def finish(first: bytes, call: Call, stopped: str) -> bytes:
    """The event that ends every choice with `length`. `first`: the events that the stream began with."""
    rest: dict[str, Any] = {"text": ""} if call.endpoint is Endpoint.COMPLETIONS else {"delta": {}}
    choices = [{"index": index, **rest, "logprobs": None, "finish_reason": "length"} for index in range(call.n)]
    return _frame({**_head(first, call), "choices": choices, "lowpass": _why(stopped)})


def closing(first: bytes, call: Call, usage: bytes, stopped: str) -> bytes:
    """The last events: why it ends (a key of `MESSAGES`), and what was used, asked for or not."""
    if call.endpoint is Endpoint.RESPONSES:
        response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        response["lowpass"] = _why(stopped)
        data = {"type": "response.incomplete", "response": _head(first, call) | response | {"usage": Raw(usage)}}
        return b"event: response.incomplete\n" + _frame(data)
    chunk = {**_head(first, call), "choices": [], "usage": Raw(usage)}
    return finish(first, call, stopped) + _frame(chunk) + b"data: [DONE]\n\n"


def _why(stopped: str) -> dict[str, str]:
    return {"stopped": stopped, "message": MESSAGES[stopped]}


def _head(first: bytes, call: Call) -> dict[str, Any]:
    """What identifies the answer in each of its events."""
    start = first.find(b"data: {")
    if start < 0:
        return {"model": call.model}
    event = msgspec.json.decode(first[start + 6 : first.index(b"\n\n", start)])
    if call.endpoint is Endpoint.RESPONSES:
        found: dict[str, Any] = event.get("response", {})
        return found
    return {name: event[name] for name in ("id", "object", "created", "model") if name in event}


def _frame(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
