"""Anthropic's Messages."""

from collections.abc import Iterator

import msgspec

from router.testing.upstream.behaviours import (
    Answer,
    Ask,
    BadRequest,
    Behaviour,
    Fault,
    Json,
    Reports,
    SseFrame,
    Tokens,
    Tool,
    record,
    rows,
)
from router.types.tables import table

SIGNATURE = "EqQBCgIYAhIM"
FIELDS = frozenset(table("testing/upstream/fields.yaml")["anthropic"])
_ERRORS = table("testing/upstream/errors.yaml")["anthropic"]
_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_EMPTY: Json = {"text": "", "thinking": "", "signature": "", "input": {}}
"""Of a block as it starts, before its deltas."""


class Anthropic:
    newline = "\n"
    preamble = ""

    def ask(self, body: Json, ask: Ask) -> Ask:
        _check(body)
        fmt = record(record(body.get("output_config")).get("format")) or record(body.get("output_format"))
        return Ask(
            model=str(body.get("model", "")),
            stream=body.get("stream") is True,
            schema=record(fmt.get("schema")) or None,
            tools=tuple(Tool(str(t["name"]), record(t.get("input_schema"))) for t in rows(body.get("tools"))),
            body=body,
        )

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        answer = behaviour.answer(ask, 0)
        usage = {} if behaviour.reports is Reports.MISSING else {"usage": _usage(behaviour.tokens)}
        return {**_message(ask), "content": [block for block, _ in _blocks(answer)], **_stop(answer), **usage}

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[SseFrame]:
        answer, tokens, silent = behaviour.answer(ask, 0), behaviour.tokens, behaviour.reports is Reports.MISSING
        start = {} if silent else {"usage": {**_usage(tokens), "output_tokens": min(1, tokens.output)}}
        events: list[Json] = [{"type": "message_start", "message": {**_message(ask), **start}}]
        for i, (block, deltas) in enumerate(_blocks(answer)):
            hollow = {name: _EMPTY.get(name, value) for name, value in block.items()}
            events += [{"type": "content_block_start", "index": i, "content_block": hollow}, {"type": "ping"}]
            events += [{"type": "content_block_delta", "index": i, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": i})
        if behaviour.reports is Reports.EVERYWHERE:
            events.append(_delta(_usage(tokens.share(1, 2))))
        events += [_delta({} if silent else _usage(tokens), **_stop(answer)), {"type": "message_stop"}]
        return [SseFrame(e, event=str(e["type"]), content=e["type"] == "content_block_delta") for e in events]

    def error(self, fault: Fault) -> tuple[int, object]:
        status, kind, message = _ERRORS.get(fault.kind, (400, "invalid_request_error", fault.message))
        return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}

    def error_frames(self, fault: Fault) -> list[SseFrame]:
        return [SseFrame(self.error(fault)[1], event="error")]


def _check(body: Json) -> None:
    """What the real server refuses."""
    if unknown := set(body) - FIELDS:
        raise BadRequest(f"{min(unknown)}: Extra inputs are not permitted")
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        raise BadRequest("max_tokens: Field required")
    if {row.get("role") for row in rows(body.get("messages"))} - {"user", "assistant"} or not body.get("messages"):
        raise BadRequest("messages: Input should be 'user' or 'assistant'")
    thinking = record(body.get("thinking"))
    if thinking.get("type") == "enabled":
        _check_thinking(thinking.get("budget_tokens"), limit, body)


def _check_thinking(budget: object, limit: int, body: Json) -> None:
    if not isinstance(budget, int) or budget < 1024:
        raise BadRequest("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= limit:
        raise BadRequest("`max_tokens` must be greater than `thinking.budget_tokens`")
    if body.get("temperature", 1) != 1:
        raise BadRequest("`temperature` may only be set to 1 when thinking is enabled")


def _message(ask: Ask) -> Json:
    who = {"id": "msg_upstream", "type": "message", "role": "assistant", "model": ask.served or f"{ask.model}-20260101"}
    return {**who, "content": [], "stop_reason": None, "stop_sequence": None}


def _stop(answer: Answer) -> dict[str, str | None]:
    if answer.stopped:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stopped}
    return {"stop_reason": "refusal" if answer.refusal else _STOP[answer.finish], "stop_sequence": None}


def _usage(tokens: Tokens) -> Json:
    """Input buckets are disjoint; thinking is inside `output_tokens`."""
    written = {"ephemeral_5m_input_tokens": tokens.cache_write, "ephemeral_1h_input_tokens": tokens.cache_write_1h}
    return {
        "input_tokens": tokens.uncached,
        "cache_creation_input_tokens": tokens.cache_write + tokens.cache_write_1h,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation": written,
        "output_tokens": tokens.output,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
        "service_tier": "standard",
    }


def _blocks(answer: Answer) -> Iterator[tuple[Json, list[Json]]]:
    """Each content block and the deltas that make it."""
    if answer.reasoning:
        deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in answer.reasoning]
        signed: Json = {"type": "signature_delta", "signature": SIGNATURE}
        yield {"type": "thinking", "thinking": "".join(answer.reasoning), "signature": SIGNATURE}, [*deltas, signed]
    if words := answer.text or answer.refusal:
        yield {"type": "text", "text": "".join(words)}, [{"type": "text_delta", "text": piece} for piece in words]
    for call in answer.calls:
        block: Json = {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name}
        pieces: list[Json] = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *call.pieces)]
        yield {**block, "input": msgspec.json.decode(call.arguments)}, pieces


def _delta(usage: Json, stop_reason: str | None = None, stop_sequence: str | None = None) -> Json:
    delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
    return {"type": "message_delta", "delta": delta, "usage": usage}
