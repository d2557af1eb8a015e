"""A whole `GenerateContentResponse` → `chat.completion`."""

from typing import Any

from adapters.chunks import answer_id, completion
from adapters.failure import malformed
from adapters.gemini.usage import usage
from adapters.gemini.wire import Candidate, finish, logprobs, response, said, tokens
from router.errors import UpstreamFailure
from router.types.call import Call, Reply


def decode(call: Call, body: bytes) -> Reply:
    """Raises `UpstreamFailure`: bad response without candidates, content filter for a blocked prompt."""
    answer = response(body)
    if not answer.candidates:
        raise UpstreamFailure(malformed("The provider's answer has no candidates."))
    identifier = answer.response_id or answer_id(call)
    choices = [_choice(candidate, identifier) for candidate in answer.candidates]
    counts = tokens(answer.usage_metadata)
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
