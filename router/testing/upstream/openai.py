"""The OpenAI wire in each provider's flavour: chat, completions, embeddings and models."""

import base64
import struct
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct, field

from router.testing.upstream.behaviours import (
    BEHAVIOURS,
    EMBEDDING,
    Answer,
    Ask,
    Behaviour,
    Fault,
    Json,
    ScriptedCall,
    SseFrame,
    Tokens,
    WireFormat,
    asked,
    record,
    rows,
)
from router.types.tables import table

_ERRORS: dict[str, dict[str, list[Any]]] = table("testing/upstream/errors.yaml")
_ERROR = {"error": {name: name for name in ("message", "type", "param", "code")}}
"""Form of an error of OpenAI's."""


class Flavour(Struct, frozen=True, kw_only=True):
    """A provider's deviations from OpenAI's chat wire: a row of `flavours.yaml`, whose head explains the fields.

    `reported` returns the counts that the provider would report; `usage` is the template for exactly these.
    """

    name: str
    usage: Json
    error: Json = field(default_factory=lambda: _ERROR)
    splits_reasoning: bool = True
    cache_read: bool = True
    cache_write: bool = False
    reasoning_field: str = ""
    thinking_parts: bool = False
    usage_place: str = "chunk"
    always_usage: bool = False
    usage_null: bool = False
    one_choice: bool = False
    responses: bool = False
    ignores_tools: bool = False
    fields: frozenset[str] = frozenset()
    served: str = "{model}-2026-01-01"
    comment: str = ""
    members: tuple[str, ...] = ()
    added: Json = {}
    with_usage: Json = {}

    def name_of(self, ask: Ask) -> str:
        """Returns the name of the model that served."""
        return ask.served or self.served.format(model=ask.model)

    def reported(self, tokens: Tokens, n: int) -> Tokens:
        """Returns the counts of `n` choices; buckets that the provider does not separate are added to neighbours."""
        tokens = tokens.share(1 if self.one_choice else n)
        if not self.splits_reasoning:
            tokens = msgspec.structs.replace(tokens, visible=tokens.output, reasoning=None)
        tokens = msgspec.structs.replace(tokens, cache_write=tokens.written, cache_write_1h=0)
        if not self.cache_write:
            tokens = msgspec.structs.replace(tokens, uncached=tokens.uncached + tokens.written, cache_write=0)
        if not self.cache_read:
            tokens = msgspec.structs.replace(tokens, uncached=tokens.uncached + tokens.cache_read, cache_read=0)
        return tokens

    def fault(self, fault: Fault) -> tuple[int, object]:
        """Returns status and body of an error."""
        row = _ERRORS.get(self.name, {}).get(fault.kind) or _ERRORS["openai"][fault.kind]
        status, message, kind, param, code, *more = row
        parts = {"status": status, "message": message or fault.message, "type": kind, "code": code}
        body = _filled(self.error, {**parts, "param": param or fault.param})
        for extra in more:
            body["error"] |= extra
        return status, body

    def dress(self, reply: Json) -> Json:
        """Adds and removes members of a whole reply or a chunk."""
        shown = {name: reply[name] for name in self.members or reply if name in reply}
        return shown | self.added | (self.with_usage if "usage" in reply else {})


_BUCKETS = (
    *("input", "output", "visible", "reasoning", "total", "uncached", "cache_read", "cache_missed"),
    *("cache_write", "cache_write_1h", "written"),
)


def counted(usage: Json, tokens: Tokens) -> Json:
    """Fills a usage template, in which strings are names of buckets of `tokens`."""
    counts: Json = _filled(usage, {name: getattr(tokens, name) for name in _BUCKETS})
    return counts


def _filled(template: Any, values: Json) -> Any:
    """Replaces strings that name a value by that value."""
    if isinstance(template, dict):
        return {name: _filled(part, values) for name, part in template.items()}
    return values.get(template, template) if isinstance(template, str) else template


FLAVOURS = {
    name: Flavour(name=name, fields=frozenset(table("testing/upstream/fields.yaml").get(name, ())), **row)
    for name, row in table("testing/upstream/flavours.yaml").items()
}

OPENROUTER_COST_USD = FLAVOURS["openrouter"].usage["cost"]
"""Cost that every reply of the OpenRouter flavour states, in USD."""
OPENROUTER_COST_NANO: int = round(OPENROUTER_COST_USD * 1e9)


def reported(wire: str, behaviour: str, n: int = 1) -> Tokens | None:
    """Returns the disjoint buckets that the provider reports; None if it reports none.

    `wire` is a flavour of `FLAVOURS`, "anthropic" or "gemini".
    """
    row = BEHAVIOURS[behaviour]
    if row.reports == "missing":
        return None
    if wire == "anthropic":
        return row.tokens
    if wire == "gemini":
        # Gemini counts cache writes as plain input, and omits a count of zero thoughts.
        tokens = row.tokens.share(n)
        uncached = tokens.uncached + tokens.written
        plain = msgspec.structs.replace(tokens, uncached=uncached, cache_write=0, cache_write_1h=0)
        return msgspec.structs.replace(plain, reasoning=plain.reasoning or None)
    return FLAVOURS[wire].reported(row.tokens, n)


CREATED = 1_790_000_000
DONE = SseFrame("[DONE]")


class _OpenAIWire(WireFormat):
    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour

    def error(self, fault: Fault) -> tuple[int, object]:
        return self._flavour.fault(fault)

    def error_frames(self, fault: Fault) -> list[SseFrame]:
        return [SseFrame(self.error(fault)[1]), DONE]

    def _count(self, tokens: Tokens, n: int) -> Json:
        return counted(self._flavour.usage, self._flavour.reported(tokens, n))


class OpenAIChat(_OpenAIWire):
    needs, identifier = "messages", "chatcmpl-upstream"
    kinds = ("chat.completion", "chat.completion.chunk")

    def __init__(self, flavour: Flavour) -> None:
        super().__init__(flavour)
        self.preamble = flavour.comment

    def ask(self, body: Json) -> Ask:
        if not body.get(self.needs):
            raise Fault("request", f"Missing required parameter: '{self.needs}'.", self.needs)
        if self._flavour.fields and (unknown := sorted(body.keys() - self._flavour.fields)):
            raise Fault("request", f"Unknown parameter: '{unknown[0]}'.", unknown[0])
        fmt, n = record(body.get("response_format")), body.get("n")
        tools = [] if self._flavour.ignores_tools else rows(body.get("tools"))
        return asked(
            body,
            [record(tool.get("function")) for tool in tools],
            record(fmt.get("json_schema")).get("schema") or fmt.get("schema"),
            n=n if isinstance(n, int) else 1,
            wants_usage=record(body.get("stream_options")).get("include_usage") is True,
        )

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        choices = [self._choice(behaviour.answer(ask, i), i) for i in range(ask.n)]
        usage = {} if behaviour.reports == "missing" else {"usage": self._count(behaviour.tokens, ask.n)}
        reply = {**self._head(ask, self.kinds[0]), "choices": choices, **usage, "service_tier": "default"}
        return self._flavour.dress(reply)

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[SseFrame]:
        # Choices alternate, as engines stream n > 1.
        turns = zip_longest(*(self._deltas(behaviour.answer(ask, i), i) for i in range(ask.n)))
        deltas: list[Json] = [delta for turn in turns for delta in turn if delta is not None]
        if behaviour.reports == "with_content" and ask.n == 1:
            deltas[-2:] = [{**deltas[-2], "finish_reason": deltas[-1]["finish_reason"]}]
        chunks = [{**self._head(ask, self.kinds[1]), "choices": [delta]} for delta in deltas]
        self._report(chunks, ask, behaviour)
        return [*(SseFrame(self._flavour.dress(chunk), content=_speaks(chunk)) for chunk in chunks), DONE]

    def _head(self, ask: Ask, kind: str) -> Json:
        stamp = {"object": kind, "created": CREATED, "model": self._flavour.name_of(ask)}
        return {"id": self.identifier, **stamp, "system_fingerprint": "fp_1"}

    def _choice(self, answer: Answer, index: int) -> Json:
        content: object = "".join(answer.text) or None
        if self._flavour.thinking_parts and answer.reasoning:
            content = [_thinking("".join(answer.reasoning)), *([{"type": "text", "text": content}] if content else [])]
        message = {"role": "assistant", "content": content, "refusal": "".join(answer.refusal) or None}
        if answer.reasoning and self._flavour.reasoning_field:
            message[self._flavour.reasoning_field] = "".join(answer.reasoning)
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        logprobs = logprobs_of(answer.text) if answer.logprobs else None
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": answer.finish}

    def _deltas(self, answer: Answer, index: int) -> Iterator[Json]:
        for piece in [{"role": "assistant", "content": None if answer.calls else ""}, *self._pieces(answer)]:
            token = piece.get("content")
            logprobs = logprobs_of((token,)) if answer.logprobs and isinstance(token, str) and token else None
            yield {"index": index, "delta": piece, "logprobs": logprobs, "finish_reason": None}
        yield {"index": index, "delta": {}, "logprobs": None, "finish_reason": answer.finish}

    def _pieces(self, answer: Answer) -> Iterator[Json]:
        flavour = self._flavour
        if flavour.thinking_parts:
            yield from ({"content": [_thinking(piece)]} for piece in answer.reasoning)
        elif flavour.reasoning_field:
            yield from ({flavour.reasoning_field: piece} for piece in answer.reasoning)
        yield from ({"content": piece} for piece in answer.text)
        yield from ({"refusal": piece} for piece in answer.refusal)
        for i, call in enumerate(answer.calls):
            yield {"tool_calls": [{"index": i, **_call(call), "function": {"name": call.name, "arguments": ""}}]}
            yield from ({"tool_calls": [{"index": i, "function": {"arguments": piece}}]} for piece in call.pieces)

    def _report(self, chunks: list[Json], ask: Ask, behaviour: Behaviour) -> None:
        """Puts the usage of `behaviour` where this provider reports it."""
        if behaviour.reports == "missing" or not (ask.wants_usage or self._flavour.always_usage):
            return
        usage = self._count(behaviour.tokens, ask.n)
        if behaviour.reports == "everywhere":
            for i, chunk in enumerate(chunks):
                chunk["usage"] = self._count(behaviour.tokens.share(i, len(chunks)), ask.n)
        elif self._flavour.usage_null:
            for chunk in chunks:
                chunk["usage"] = None
        place = self._flavour.usage_place
        if behaviour.reports == "with_content" or place == "finish":
            chunks[-1]["usage"] = usage
        elif place == "x_groq":
            chunks[-1]["x_groq"] = {"id": "req_upstream", "usage": usage}
        elif place == "choice":
            chunks[-1]["choices"] = [{**choice, "usage": usage} for choice in rows(chunks[-1]["choices"])]
        else:
            chunks.append({**self._head(ask, self.kinds[1]), "choices": [], "usage": usage})


def _speaks(chunk: Json) -> bool:
    """Whether a chunk carries content; all chunks of completions do, including the last."""
    choices = rows(chunk["choices"])
    deltas = [record(choice.get("delta")) for choice in choices]
    return any("text" in choice for choice in choices) or any(
        value and name != "role" for delta in deltas for name, value in delta.items()
    )


def _call(call: ScriptedCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _thinking(text: str) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def logprobs_of(pieces: tuple[str, ...]) -> Json:
    """Returns logprobs in which each piece is one token."""
    rows = [{"token": p, "logprob": -0.25, "bytes": list(p.encode()), "top_logprobs": []} for p in pieces]
    return {"content": rows, "refusal": None}


VECTOR = (0.25, -0.5, 0.125, 1.0)
"""Embedding of every input; exact in 32-bit floats, so that both encodings are equal."""


class OpenAICompletions(OpenAIChat):
    needs, identifier = "prompt", "cmpl-upstream"
    kinds = ("text_completion", "text_completion")

    def _choice(self, answer: Answer, index: int) -> Json:
        return _text("".join(answer.text), index, answer, answer.finish)

    def _deltas(self, answer: Answer, index: int) -> Iterator[Json]:
        yield from (_text(piece, index, answer, None) for piece in answer.text)
        yield _text("", index, answer, answer.finish)


class OpenAIEmbeddings(_OpenAIWire):
    def ask(self, body: Json) -> Ask:
        if "input" not in body:
            raise Fault("request", "Missing required parameter: 'input'.", "input")
        return Ask(model=str(body.get("model", "")), body=body)

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        texts = ask.body["input"]  # one text, a list of its token ids, or a list of either
        count = len(texts) if isinstance(texts, list) and not isinstance(texts[0], int) else 1
        vector = (
            base64.b64encode(struct.pack(f"<{len(VECTOR)}f", *VECTOR)).decode()
            if ask.body.get("encoding_format") == "base64"
            else list(VECTOR)
        )
        rows = [{"object": "embedding", "index": i, "embedding": vector} for i in range(count)]
        spent = EMBEDDING.input * count
        reply: Json = {"object": "list", "data": rows, "model": self._flavour.name_of(ask)}
        usage = {"usage": {"prompt_tokens": spent, "total_tokens": spent}}
        return {**reply, **({} if behaviour.reports == "missing" else usage)}

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[SseFrame]:
        raise Fault("request", "Embeddings are not streamed.", "stream")

    def error_frames(self, fault: Fault) -> list[SseFrame]:
        return []


def models() -> Json:
    """Returns the list of behaviours, as `/v1/models` does."""
    rows = [{"id": name, "object": "model", "created": CREATED, "owned_by": "upstream"} for name in BEHAVIOURS]
    return {"object": "list", "data": rows}


def _text(text: str, index: int, answer: Answer, finish: str | None) -> Json:
    """Returns a choice or a part of it; in logprobs the whole text is one token."""
    logprobs = {"tokens": [text], "token_logprobs": [-0.25], "top_logprobs": [{text: -0.25}], "text_offset": [0]}
    known = logprobs if answer.logprobs and text else None
    return {"index": index, "text": text, "logprobs": known, "finish_reason": finish}
