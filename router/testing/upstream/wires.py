"""The wires of Anthropic's Messages, Gemini's generateContent and OpenAI's Responses."""

from collections.abc import Iterator

import msgspec

from router.testing.upstream.behaviours import (
    Answer,
    Ask,
    Behaviour,
    Fault,
    Json,
    SseFrame,
    Tokens,
    Tool,
    WireFormat,
    asked,
    record,
    rows,
)
from router.testing.upstream.openai import CREATED, FLAVOURS, counted, logprobs_of
from router.types.tables import table

SIGNATURE = "EqQBCgIYAhIM"
ANTHROPIC_FIELDS = frozenset(table("testing/upstream/fields.yaml")["anthropic"])
_ANTHROPIC_ERRORS = table("testing/upstream/errors.yaml")["anthropic"]
_USAGE = table("testing/upstream/usage.yaml")
_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_EMPTY: Json = {"text": "", "thinking": "", "signature": "", "input": {}}
"""Values of a block's fields at its start, before its deltas."""


class Anthropic(WireFormat):
    def ask(self, body: Json) -> Ask:
        _check_message(body)
        fmt = record(record(body.get("output_config")).get("format")) or record(body.get("output_format"))
        return asked(body, rows(body.get("tools")), fmt.get("schema"), "input_schema")

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        answer = behaviour.answer(ask, 0)
        usage = {} if behaviour.reports == "missing" else {"usage": counted(_USAGE["anthropic"], behaviour.tokens)}
        return {**_message(ask), "content": [block for block, _ in _blocks(answer)], **_stop(answer), **usage}

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[SseFrame]:
        answer, tokens, silent = behaviour.answer(ask, 0), behaviour.tokens, behaviour.reports == "missing"
        usage = {} if silent else counted(_USAGE["anthropic"], tokens)
        start = {} if silent else {"usage": {**usage, "output_tokens": min(1, tokens.output)}}
        events: list[Json] = [{"type": "message_start", "message": {**_message(ask), **start}}]
        for i, (block, deltas) in enumerate(_blocks(answer)):
            hollow = {name: _EMPTY.get(name, value) for name, value in block.items()}
            events += [{"type": "content_block_start", "index": i, "content_block": hollow}, {"type": "ping"}]
            events += [{"type": "content_block_delta", "index": i, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": i})
        if behaviour.reports == "everywhere":
            events.append(_message_delta(counted(_USAGE["anthropic"], tokens.share(1, 2))))
        final = {} if behaviour.reports == "at_start" else usage
        events += [_message_delta(final, **_stop(answer)), {"type": "message_stop"}]
        return [SseFrame(e, event=str(e["type"]), content=e["type"] == "content_block_delta") for e in events]

    def error(self, fault: Fault) -> tuple[int, object]:
        status, kind, message = _ANTHROPIC_ERRORS.get(fault.kind, (400, "invalid_request_error", fault.message))
        return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}

    def error_frames(self, fault: Fault) -> list[SseFrame]:
        return [SseFrame(self.error(fault)[1], event="error")]


def _check_message(body: Json) -> None:
    """Raises `Fault` for what the real server refuses."""
    if unknown := set(body) - ANTHROPIC_FIELDS:
        raise Fault("request", f"{min(unknown)}: Extra inputs are not permitted")
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        raise Fault("request", "max_tokens: Field required")
    if {row.get("role") for row in rows(body.get("messages"))} - {"user", "assistant"} or not body.get("messages"):
        raise Fault("request", "messages: Input should be 'user' or 'assistant'")
    thinking = record(body.get("thinking"))
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled":
        return
    if not isinstance(budget, int) or budget < 1024:
        raise Fault("request", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= limit:
        raise Fault("request", "`max_tokens` must be greater than `thinking.budget_tokens`")
    if body.get("temperature", 1) != 1:
        raise Fault("request", "`temperature` may only be set to 1 when thinking is enabled")


def _message(ask: Ask) -> Json:
    who = {"id": "msg_upstream", "type": "message", "role": "assistant", "model": ask.served or f"{ask.model}-20260101"}
    return {**who, "content": [], "stop_reason": None, "stop_sequence": None}


def _stop(answer: Answer) -> dict[str, str | None]:
    if answer.stopped:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stopped}
    return {"stop_reason": "refusal" if answer.refusal else _STOP[answer.finish], "stop_sequence": None}


def _blocks(answer: Answer) -> Iterator[tuple[Json, list[Json]]]:
    """Yields each content block, with its deltas."""
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


def _message_delta(usage: Json, stop_reason: str | None = None, stop_sequence: str | None = None) -> Json:
    delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
    return {"type": "message_delta", "delta": delta, "usage": usage}


GEMINI_FIELDS = frozenset(table("testing/upstream/fields.yaml")["gemini"])
GEMINI_CONFIG = frozenset(table("testing/upstream/fields.yaml")["gemini_config"])
_GEMINI_ERRORS = table("testing/upstream/errors.yaml")["gemini"]
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}


class Gemini(WireFormat):
    newline = "\r\n"

    def __init__(self, model: str = "", stream: bool = False) -> None:
        """`model` and `stream` are stated in the path."""
        self._model, self._stream = model, stream

    def ask(self, body: Json) -> Ask:
        config = record(body.get("generationConfig") or body.get("generation_config"))
        _check_contents(body, config)
        functions = [f for tool in rows(body.get("tools")) for f in rows(_either(tool, "functionDeclarations"))]
        schemas = (config.get(name) for name in ("responseSchema", "responseJsonSchema", "_responseJsonSchema"))
        n = config.get("candidateCount")
        return Ask(
            model=self._model,
            stream=self._stream,
            n=n if isinstance(n, int) else 1,
            schema=next((record(schema) for schema in schemas if schema), None),
            tools=tuple(
                Tool(str(f["name"]), (record(f.get("parameters")) or record(_either(f, "parametersJsonSchema"))))
                for f in functions
            ),
            body=body,
        )

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        answers = [behaviour.answer(ask, i) for i in range(ask.n)]
        candidates = [_candidate(list(_parts(a, whole=True)), i, _finish(a), a.logprobs) for i, a in enumerate(answers)]
        return _reply(ask, candidates, None if behaviour.reports == "missing" else behaviour.tokens)

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[SseFrame]:
        """Returns chunks with one candidate and the cumulative usage each; a candidate's last one has its finish."""
        steps: list[Json] = []
        for i in range(ask.n):
            answer = behaviour.answer(ask, i)
            parts = list(_parts(answer, whole=False))
            steps += [_candidate([part], i, None, answer.logprobs) for part in parts[:-1]]
            steps.append(_candidate(parts[-1:], i, _finish(answer), answer.logprobs))
        silent, size = behaviour.reports == "missing", len(steps)
        return [
            SseFrame(_reply(ask, [step], None if silent else behaviour.tokens.share(k, size)), content=True)
            for k, step in enumerate(steps, start=1)
        ]

    def error(self, fault: Fault) -> tuple[int, object]:
        code, status, message, *details = _GEMINI_ERRORS.get(fault.kind, (400, "INVALID_ARGUMENT", fault.message))
        more = {"details": details} if details else {}
        return code, {"error": {"code": code, "message": message, "status": status, **more}}


def _check_contents(body: Json, config: Json) -> None:
    """Raises `Fault` for what the real server refuses."""
    for known, given, place in ((GEMINI_FIELDS, body, ""), (GEMINI_CONFIG, config, " at 'generation_config'")):
        if unknown := set(given) - known:
            raise Fault(
                "request", f'Invalid JSON payload received. Unknown name "{min(unknown)}"{place}: Cannot find field.'
            )
    if not rows(body.get("contents")):
        raise Fault("request", "* GenerateContentRequest.contents: contents is not specified")
    if {row.get("role", "user") for row in rows(body["contents"])} - {"user", "model", "function"}:
        raise Fault("request", "Please use a valid role: user, model.")
    if len({"thinkingBudget", "thinkingLevel"} & set(record(config.get("thinkingConfig")))) == 2:
        raise Fault("request", "You can only set only one of thinking budget and thinking level.")


def _either(value: Json, camel: str) -> object:
    """Returns a field in camel or snake case, as Google accepts both."""
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in camel)
    return value.get(camel, value.get(snake))


def _parts(answer: Answer, *, whole: bool) -> Iterator[Json]:
    """Yields thoughts, text and calls; each call is a single part."""
    thoughts = ("".join(answer.reasoning),) if whole and answer.reasoning else answer.reasoning
    yield from ({"text": piece, "thought": True} for piece in thoughts)
    text = ("".join(answer.text),) if whole and answer.text else answer.text
    yield from ({"text": piece} for piece in text)
    for call in answer.calls:
        yield {
            "functionCall": {"name": call.name, "args": msgspec.json.decode(call.arguments)},
            "thoughtSignature": "c2ln",
        }


def _finish(answer: Answer) -> str:
    return "SAFETY" if answer.refusal else _FINISH[answer.finish]


def _candidate(parts: list[Json], index: int, finish: str | None, logprobs: bool) -> Json:
    content: Json = {"role": "model", **({"parts": parts} if parts else {})}
    chosen = [{"token": part.get("text", ""), "tokenId": 1, "logProbability": -0.25} for part in parts]
    tokens = {"logprobsResult": {"chosenCandidates": chosen, "topCandidates": []}} if logprobs else {}
    return {"content": content, **({"finishReason": finish} if finish else {}), "index": index, **tokens}


def _reply(ask: Ask, candidates: list[Json], tokens: Tokens | None) -> Json:
    usage: Json = {}
    if tokens is not None:
        # Thoughts are not part of the candidates' count; a count of zero is omitted.
        tokens = tokens.share(ask.n)
        counts = {"promptTokenCount": tokens.input, "candidatesTokenCount": tokens.visible}
        rare = {"cachedContentTokenCount": tokens.cache_read, "thoughtsTokenCount": tokens.reasoning}
        counts |= {name: count for name, count in rare.items() if count}
        detail = [{"modality": "TEXT", "tokenCount": tokens.input}]
        usage["usageMetadata"] = {**counts, "totalTokenCount": tokens.total, "promptTokensDetails": detail}
    return {
        "candidates": candidates,
        **usage,
        "modelVersion": ask.served or f"{ask.model}-001",
        "responseId": "resp_upstream",
    }


class OpenAIResponses(WireFormat):
    def ask(self, body: Json) -> Ask:
        if "input" not in body:
            raise Fault("request", "Missing required parameter: 'input'.", "input")
        functions = [tool for tool in rows(body.get("tools")) if tool.get("type") == "function"]
        return asked(body, functions, record(record(body.get("text")).get("format")).get("schema"))

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        answer = behaviour.answer(ask, 0)
        ended = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        end = ended if answer.finish == "length" else {"status": "completed"}
        usage = None if behaviour.reports == "missing" else counted(_USAGE["responses"], behaviour.tokens)
        return {**_response(ask), **end, "output": _items(answer), "usage": usage}

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


_ECHOED: Json = {"store": True, "tool_choice": "auto", "tools": []}
_ECHOED |= dict.fromkeys(("instructions", "metadata", "temperature", "top_p", "previous_response_id"))
"""Fields of the request that the answer repeats, with their defaults."""


def _response(ask: Ask) -> Json:
    head = {"id": "resp_upstream", "object": "response", "created_at": CREATED, "status": "in_progress"}
    empty: Json = {"error": None, "incomplete_details": None, "output": [], "parallel_tool_calls": True}
    echoed = {name: ask.body.get(name, default) for name, default in _ECHOED.items()}
    return {**head, **empty, "model": f"{ask.model}-2026-01-01", **echoed}


def _items(answer: Answer) -> list[Json]:
    summary = [{"type": "summary_text", "text": "".join(answer.reasoning)}]
    items = [{"id": "rs_upstream", "type": "reasoning", "summary": summary}] if answer.reasoning else list[Json]()
    if answer.text or answer.refusal:
        part: Json = {"type": "refusal", "refusal": "".join(answer.refusal)}
        if answer.text:
            logprobs = logprobs_of(answer.text)["content"] if answer.logprobs else []
            part = {"type": "output_text", "text": "".join(answer.text), "annotations": [], "logprobs": logprobs}
        message = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
        items.append({"id": "msg_upstream", **message})
    for call in answer.calls:
        function = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append({"id": f"fc_{call.id}", "type": "function_call", "status": "completed", **function})
    return items


def _grow(item: Json, index: int, answer: Answer) -> Iterator[Json]:
    """Yields the events from `output_item.added` to `output_item.done`."""
    place: Json = {"output_index": index, "item_id": item["id"]}
    hollow: dict[str, Json] = {"reasoning": {"summary": []}, "message": {"content": [], "status": "in_progress"}}
    empty: Json = hollow.get(str(item["type"]), {"arguments": "", "status": "in_progress"})
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **empty}}
    if item["type"] == "reasoning":
        inside = {**place, "summary_index": 0}
        yield from _grow_part(inside, item["summary"][0], "reasoning_summary_part", "reasoning_summary_text", answer)
    elif item["type"] == "message":
        kind = "output_text" if answer.text else "refusal"
        yield from _grow_part({**place, "content_index": 0}, item["content"][0], "content_part", kind, answer)
    else:
        call = next(call for call in answer.calls if call.id == item["call_id"])
        for piece in call.pieces:
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        done = {"name": call.name, "arguments": call.arguments}
        yield {"type": "response.function_call_arguments.done", **place, **done}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _grow_part(place: Json, part: Json, outer: str, inner: str, answer: Answer) -> Iterator[Json]:
    """Yields the events of a part; `outer` and `inner` are the names of events of the part and of its text."""
    field = "refusal" if inner == "refusal" else "text"
    more: Json = {"logprobs": []} if inner == "output_text" else {}
    pieces = answer.reasoning if outer == "reasoning_summary_part" else answer.text or answer.refusal
    yield {"type": f"response.{outer}.added", **place, "part": {**part, field: ""}}
    for piece in pieces:
        yield {"type": f"response.{inner}.delta", **place, "delta": piece, **more}
    yield {"type": f"response.{inner}.done", **place, field: part[field], **more}
    yield {"type": f"response.{outer}.done", **place, "part": part}
