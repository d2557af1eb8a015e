"""What `generateContent` sends, as far as it is read: whole answers and stream chunks have the same shape."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.failure import UNREADABLE, malformed
from adapters.usage import Count
from router.errors import UpstreamFailure
from router.types.failure import ErrorKind, Failure

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
_TOKENS = msgspec.json.Decoder(Tokens)
_SILENCE = Tokens()

FINISH = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "ESCALATION": "content_filter",
    "PUP_LIMITED_DISABLED": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}
"""Finish reason → OpenAI's. The rest (MALFORMED_FUNCTION_CALL, OTHER …) is "stop", with Gemini's message as refusal."""


def response(payload: bytes) -> Response:
    """Raises `UpstreamFailure`: bad response for anything but an answer, content filter for a blocked prompt."""
    try:
        found = _DECODER.decode(payload)
    except UNREADABLE:
        raise UpstreamFailure(malformed("The provider's answer is not a GenerateContentResponse.")) from None
    feedback = found.prompt_feedback
    if feedback and feedback.block_reason and not found.candidates:
        message = feedback.block_reason_message or f"The provider blocked the prompt: {feedback.block_reason}."
        raise UpstreamFailure(Failure(ErrorKind.CONTENT_FILTER, message))
    return found


def tokens(usage: Raw) -> Tokens | None:
    """None where the report is missing, empty or unreadable: the answer stands without it."""
    try:
        found = _TOKENS.decode(usage)
    except UNREADABLE:
        return None
    return None if found == _SILENCE else found


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
    fields = {
        "id": call.id or identifier,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
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
