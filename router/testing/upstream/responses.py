"""`/v1/responses`."""

from collections.abc import Iterator

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
from router.testing.upstream.openai import CREATED, FLAVOURS


class OpenAIResponses:
    newline = "\n"
    preamble = ""

    def ask(self, body: Json, ask: Ask) -> Ask:
        if "input" not in body:
            raise BadRequest("Missing required parameter: 'input'.", "input")
        functions = [tool for tool in rows(body.get("tools")) if tool.get("type") == "function"]
        return Ask(
            model=str(body.get("model", "")),
            stream=body.get("stream") is True,
            schema=record(record(record(body.get("text")).get("format")).get("schema")) or None,
            tools=tuple(Tool(str(f["name"]), record(f.get("parameters"))) for f in functions),
            body=body,
        )

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        answer = behaviour.answer(ask, 0)
        ended = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        end = ended if answer.finish == "length" else {"status": "completed"}
        return {**_response(ask), **end, "output": _items(answer), **_usage(behaviour)}

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[SseFrame]:
        whole, answer = self.whole(ask, behaviour), behaviour.answer(ask, 0)
        events: list[Json] = [
            {"type": "response.created", "response": {**_response(ask), "usage": None}},
            {"type": "response.in_progress", "response": {**_response(ask), "usage": None}},
            *(event for i, item in enumerate(_items(answer)) for event in _grow(item, i, answer)),
            {"type": f"response.{whole['status']}", "response": whole},
        ]
        return [
            SseFrame({**event, "sequence_number": i}, event=str(event["type"]), content="delta" in event)
            for i, event in enumerate(events)
        ]

    def error(self, fault: Fault) -> tuple[int, object]:
        return FLAVOURS["openai"].fault(fault)

    def error_frames(self, fault: Fault) -> list[SseFrame]:
        error = record(record(self.error(fault)[1])["error"])
        data = {"type": "error", "code": "server_error", "message": error["message"], "param": None}
        return [SseFrame({**data, "sequence_number": 99}, event="error")]


def _response(ask: Ask) -> Json:
    echoed = {
        name: ask.body.get(name)
        for name in ("instructions", "metadata", "temperature", "top_p", "previous_response_id")
    }
    return {
        "id": "resp_upstream",
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": f"{ask.model}-2026-01-01",
        "output": [],
        "parallel_tool_calls": True,
        "store": ask.body.get("store", True),
        "tool_choice": ask.body.get("tool_choice", "auto"),
        "tools": ask.body.get("tools", []),
        **echoed,
    }


def _usage(behaviour: Behaviour) -> Json:
    if behaviour.reports is Reports.MISSING:
        return {"usage": None}
    tokens: Tokens = behaviour.tokens
    written = tokens.cache_write + tokens.cache_write_1h
    counts = {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    }
    cached = {"cached_tokens": tokens.cache_read, "cache_write_tokens": written}
    detail = {"reasoning_tokens": tokens.reasoning}
    return {"usage": {**counts, "input_tokens_details": cached, "output_tokens_details": detail}}


def _items(answer: Answer) -> list[Json]:
    summary = [{"type": "summary_text", "text": "".join(answer.reasoning)}]
    items = [{"id": "rs_upstream", "type": "reasoning", "summary": summary}] if answer.reasoning else list[Json]()
    if answer.text or answer.refusal:
        tokens = [{"token": p, "logprob": -0.25, "bytes": list(p.encode()), "top_logprobs": []} for p in answer.text]
        part: Json = {"type": "refusal", "refusal": "".join(answer.refusal)}
        if answer.text:
            logprobs = tokens if answer.logprobs else []
            part = {"type": "output_text", "text": "".join(answer.text), "annotations": [], "logprobs": logprobs}
        message = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
        items.append({"id": "msg_upstream", **message})
    for call in answer.calls:
        function = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append({"id": f"fc_{call.id}", "type": "function_call", "status": "completed", **function})
    return items


def _grow(item: Json, index: int, answer: Answer) -> Iterator[Json]:
    """The events from `output_item.added` to `output_item.done`."""
    place: Json = {"output_index": index, "item_id": item["id"]}
    hollow: dict[str, Json] = {"reasoning": {"summary": []}, "message": {"content": [], "status": "in_progress"}}
    empty: Json = hollow.get(str(item["type"]), {"arguments": "", "status": "in_progress"})
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **empty}}
    if item["type"] == "reasoning":
        yield from _grow_thought(item, place, answer)
    elif item["type"] == "message":
        yield from _grow_message(item, place, answer)
    else:
        call = next(call for call in answer.calls if call.id == item["call_id"])
        for piece in call.pieces:
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        done = {"name": call.name, "arguments": call.arguments}
        yield {"type": "response.function_call_arguments.done", **place, **done}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _grow_thought(item: Json, place: Json, answer: Answer) -> Iterator[Json]:
    place, (part,) = {**place, "summary_index": 0}, rows(item["summary"])
    yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
    for piece in answer.reasoning:
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **place, "part": part}


def _grow_message(item: Json, place: Json, answer: Answer) -> Iterator[Json]:
    place, (part,) = {**place, "content_index": 0}, rows(item["content"])
    name, field = ("output_text", "text") if answer.text else ("refusal", "refusal")
    yield {"type": "response.content_part.added", **place, "part": {**part, field: ""}}
    for piece in answer.text or answer.refusal:
        extra: Json = {"logprobs": []} if answer.text else {}
        yield {"type": f"response.{name}.delta", **place, "delta": piece, **extra}
    yield {"type": f"response.{name}.done", **place, field: part[field], **({"logprobs": []} if answer.text else {})}
    yield {"type": "response.content_part.done", **place, "part": part}
