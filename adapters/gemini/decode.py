"""A `generateContent` answer or stream becomes a chat answer, with its usage."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.failure import UNREADABLE, malformed, streamed
from adapters.sse import Chunks, EventStream, answer_id, completion
from adapters.usage import Count, counters, later, tier
from router.errors import UpstreamFailure
from router.types.attempt import Call, ErrorKind, Failure, Reply, Source, Usage

# What `generateContent` sends, as far as it is read: whole answers and stream chunks have the same shape.

NULL = Raw(b"null")


class _Wire(Struct, frozen=True, rename="camel"):
    pass


class FunctionCall(_Wire, frozen=True):
    name: str = ""
    args: Raw = Raw(b"{}")
    id: str = ""


class Part(_Wire, frozen=True):
    text: str = ""
    thought: bool = False
    thought_signature: str = ""
    function_call: FunctionCall | None = None


class Content(_Wire, frozen=True):
    parts: list[Part] | None = None


class Token(_Wire, frozen=True):
    token: str = ""
    log_probability: float = 0.0


class TopTokens(_Wire, frozen=True):
    candidates: list[Token] = []


class Logprobs(_Wire, frozen=True):
    chosen_candidates: list[Token] = []
    top_candidates: list[TopTokens] = []


class Candidate(_Wire, frozen=True):
    content: Content | None = None
    finish_reason: str = ""
    finish_message: str | None = None
    index: int = 0
    logprobs_result: Logprobs | None = None

    @property
    def parts(self) -> list[Part]:
        return (self.content.parts if self.content else None) or []


class Modality(_Wire, frozen=True):
    modality: str = ""
    token_count: Count = 0


class Tokens(_Wire, frozen=True):
    """`usageMetadata`; cumulative in a stream. A counter of zero is left out on the wire."""

    prompt_token_count: Count | None = None
    cached_content_token_count: Count | None = None
    tool_use_prompt_token_count: Count | None = None
    candidates_token_count: Count | None = None
    thoughts_token_count: Count | None = None
    total_token_count: Count | None = None
    prompt_tokens_details: list[Modality] | None = None
    cache_tokens_details: list[Modality] | None = None
    tool_use_prompt_tokens_details: list[Modality] | None = None
    candidates_tokens_details: list[Modality] | None = None
    traffic_type: str = ""


class PromptFeedback(_Wire, frozen=True):
    block_reason: str = ""
    block_reason_message: str | None = None


class Response(_Wire, frozen=True):
    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: Raw = NULL
    model_version: str = ""
    response_id: str = ""
    error: Raw = NULL


_DECODER = msgspec.json.Decoder(Response)
TOKENS = msgspec.json.Decoder(Tokens)

FINISH = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length"} | dict.fromkeys(
    (
        *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "ESCALATION"),
        *("PUP_LIMITED_DISABLED", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
    ),
    "content_filter",
)
"""Finish reason → OpenAI's. The rest (MALFORMED_FUNCTION_CALL, OTHER …) is "stop", with Gemini's message as refusal."""


def response(payload: bytes) -> Response:
    """Raises `UpstreamFailure`: bad response for anything but an answer, content filter for a blocked prompt."""
    try:
        found = _DECODER.decode(payload)
    except UNREADABLE:
        raise UpstreamFailure(malformed("The provider's answer is not a GenerateContentResponse.")) from None
    if found.error != NULL:
        raise UpstreamFailure(streamed(payload))
    feedback = found.prompt_feedback
    if feedback and feedback.block_reason and not found.candidates:
        message = feedback.block_reason_message or f"The provider blocked the prompt: {feedback.block_reason}."
        raise UpstreamFailure(Failure(ErrorKind.CONTENT_FILTER, message))
    return found


def finish(reason: str, *, called: bool) -> str:
    """OpenAI's finish reason; `called`: the candidate holds a function call."""
    known = FINISH.get(reason, "stop")
    return "tool_calls" if called and known == "stop" else known


def said(candidate: Candidate, name: str, before: int = 0) -> dict[str, Any]:
    """The parts of one candidate as fields of a message or delta; ids of calls are made from `name`.

    `before` counts the function calls that the candidate has made in earlier chunks.
    """
    parts = candidate.parts
    calls = [(part, part.function_call) for part in parts if part.function_call]
    fields = {
        "content": "".join(part.text for part in parts if not part.thought),
        "reasoning_content": "".join(part.text for part in parts if part.thought),
        "refusal": candidate.finish_message if candidate.finish_reason not in ("", "STOP", "MAX_TOKENS") else None,
        "tool_calls": [
            _tool_call(call, part.thought_signature, f"call_{name}_{candidate.index}_{number}")
            for number, (part, call) in enumerate(calls, before)
        ],
    }
    return {name: value for name, value in fields.items() if value}


def _tool_call(call: FunctionCall, signature: str, identifier: str) -> dict[str, Any]:
    arguments = msgspec.json.format(bytes(call.args), indent=-1).decode()
    fields = {"id": call.id or identifier, "type": "function", "function": {"name": call.name, "arguments": arguments}}
    return {**fields, "extra_content": {"google": {"thought_signature": signature}}} if signature else fields


def logprobs(candidate: Candidate) -> dict[str, Any] | None:
    """OpenAI's `logprobs` of a choice."""
    result = candidate.logprobs_result
    if result is None:
        return None
    tops = [top.candidates for top in result.top_candidates]
    tops += [[]] * (len(result.chosen_candidates) - len(tops))
    content = [
        {**_logprob(chosen), "top_logprobs": [_logprob(token) for token in top]}
        for chosen, top in zip(result.chosen_candidates, tops, strict=False)
    ]
    return {"content": content, "refusal": None}


def _logprob(token: Token) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.log_probability, "bytes": list(token.token.encode())}


# Gemini's counts → disjoint buckets. Cached input is inside the prompt, thoughts are outside the candidates.
#
# The total is prompt + toolUsePrompt + candidates + thoughts, and checks the parts.


def usage(tokens: Tokens) -> Usage:
    violations: list[str] = []
    prompt = tokens.prompt_token_count or 0
    cached = tokens.cached_content_token_count or 0
    tool_use = tokens.tool_use_prompt_token_count or 0
    candidates = tokens.candidates_token_count or 0
    thoughts, source = _thoughts(tokens, prompt + tool_use + candidates)
    if cached > prompt:
        violations.append("cachedContentTokenCount exceeds promptTokenCount")
    output = candidates + (thoughts or 0)
    stated = output if tokens.total_token_count is None else tokens.total_token_count - prompt - tool_use
    if stated != output:
        violations.append("totalTokenCount is not the sum of its parts")
    cached_audio = min(_of(tokens.cache_tokens_details, "AUDIO"), cached)
    uncached = max(prompt - cached, 0) + tool_use
    audio, image, video = _media(tokens, uncached)
    audio_out = min(_of(tokens.candidates_tokens_details, "AUDIO"), candidates)
    image_out = min(_of(tokens.candidates_tokens_details, "IMAGE"), candidates - audio_out)
    return Usage(
        input_uncached=uncached - audio - image - video,
        cache_read=cached - cached_audio,
        cache_read_audio=cached_audio,
        input_audio=audio,
        input_image=image,
        input_video=video,
        output_visible=max(stated, output) - (thoughts or 0) - audio_out - image_out,
        output_reasoning=thoughts,
        output_audio=audio_out,
        output_image=image_out,
        reasoning_source=source,
        service_tier=tier(tokens.traffic_type.removeprefix("ON_DEMAND").lstrip("_")),
        violations=tuple(violations),
    )


def _thoughts(tokens: Tokens, rest: int) -> tuple[int | None, Source]:
    """Where the count is left out, the total says how many thoughts there were: that is how it shows zero."""
    if tokens.thoughts_token_count is not None:
        return tokens.thoughts_token_count, Source.REPORTED
    if tokens.total_token_count is None:
        return None, Source.UNKNOWN
    return max(tokens.total_token_count - rest, 0), Source.DERIVED


def _media(tokens: Tokens, uncached: int) -> tuple[int, int, int]:
    """(audio, image, video) among the input that is not cached."""
    found: list[int] = []
    for modality in ("AUDIO", "IMAGE", "VIDEO"):
        sent = _of(tokens.prompt_tokens_details, modality) - _of(tokens.cache_tokens_details, modality)
        found.append(min(max(sent, 0) + _of(tokens.tool_use_prompt_tokens_details, modality), uncached - sum(found)))
    return found[0], found[1], found[2]


def _of(details: list[Modality] | None, modality: str) -> int:
    if not details:
        return 0
    return sum(detail.token_count for detail in details if detail.modality == modality)


# A whole `GenerateContentResponse` → `chat.completion`.


def decode(call: Call, body: bytes) -> Reply:
    """Raises `UpstreamFailure`: bad response without candidates, content filter for a blocked prompt."""
    answer = response(body)
    candidates = answer.candidates or ()
    if not any(row.finish_reason or (row.content and row.content.parts) for row in candidates):
        raise UpstreamFailure(malformed("The provider's answer has no candidates."))
    identifier = answer.response_id or answer_id(call)
    choices = [_choice(candidate, identifier) for candidate in candidates]
    counts = counters(TOKENS, answer.usage_metadata)
    messages = [choice["message"] for choice in choices]
    return Reply(
        body=completion(call, identifier, choices),
        usage=usage(counts) if counts else None,
        finish_reason=choices[0]["finish_reason"],
        has_answer=any(message["content"] or "tool_calls" in message for message in messages),
        model_served=answer.model_version,
    )


def _choice(candidate: Candidate, name: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "refusal": None, **said(candidate, name)}
    return {
        "index": candidate.index,
        "message": message,
        "logprobs": logprobs(candidate),
        "finish_reason": finish(candidate.finish_reason, called="tool_calls" in message),
    }


# `streamGenerateContent?alt=sse` → `chat.completion.chunk` events.


class GeminiStream(EventStream):
    """Finish reasons wait for `final`: Gemini may repeat one on every chunk."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._chunks = Chunks(call)
        self._begun = False
        self._tokens = Tokens()
        self._calls: dict[int, int] = {}
        self._reasons: dict[int, str] = {}

    def final(self, usage: bytes) -> bytes:
        ends = [
            self._chunks.delta({}, index, finish(reason, called=self._calls[index] > 0))
            for index, reason in sorted(self._reasons.items())
        ]
        return b"".join(ends) + self._chunks.closing(usage)

    def _event(self, name: bytes, payload: bytes) -> bytes:
        if payload == b"[DONE]" and self.finished:
            self.complete = True
            return b""
        answer = response(payload)
        if counts := counters(TOKENS, answer.usage_metadata):
            self._tokens = later(self._tokens, counts)
            self.usage = usage(self._tokens)
        self.model_served = answer.model_version or self.model_served
        if answer.response_id and not self._begun:
            self._chunks.name(answer.response_id)
        self._begun = True
        return b"".join([self._candidate(candidate) for candidate in answer.candidates or ()])

    def _candidate(self, candidate: Candidate) -> bytes:
        index, reason = candidate.index, candidate.finish_reason
        role = {} if index in self._calls else {"role": "assistant", "content": ""}
        delta = said(candidate, self._chunks.id, self._calls.setdefault(index, 0))
        self._count(index, delta)
        if reason:
            self._reasons[index] = reason
            self.finish_reason = finish(self._reasons[min(self._reasons)], called=self._calls[min(self._reasons)] > 0)
        self.finished = self._reasons.keys() == self._calls.keys()
        if not role and not delta and candidate.logprobs_result is None:
            return b""
        return self._chunks.delta({**role, **delta}, index, logprobs=logprobs(candidate))

    def _count(self, index: int, delta: dict[str, Any]) -> None:
        calls = delta.get("tool_calls", ())
        for number, call in enumerate(calls, self._calls[index]):
            call["index"] = number
        self._calls[index] += len(calls)
        self.output_chars += len(delta.get("content", "")) + len(delta.get("reasoning_content", ""))
        self.output_chars += sum(len(call["function"]["name"] + call["function"]["arguments"]) for call in calls)
        self.has_answer = self.has_answer or "content" in delta or bool(calls)
