"""What of a client's request may reach LiteLLM.

LiteLLM's functions take addresses, keys, callbacks and fallbacks beside OpenAI's fields, execute some tools themselves
and fetch addresses in messages. So fields are listed, and anything that would make it talk to another place is refused.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Raw

from adapters.failure import UNREADABLE
from router.errors import ClientError
from router.types.request import Endpoint

_SHARED = frozenset(
    [
        *("frequency_penalty", "logit_bias", "logprobs", "max_tokens", "model", "n", "presence_penalty"),
        *("reasoning_effort", "seed", "stop", "stream", "stream_options", "temperature", "top_p", "user"),
    ]
)
_CHAT = frozenset(
    [
        *("audio", "function_call", "functions", "max_completion_tokens", "messages", "modalities"),
        *("parallel_tool_calls", "prediction", "prompt_cache_key", "response_format"),
        *(
            "safety_identifier",
            "service_tier",
            "store",
            "thinking",
            "tool_choice",
            "tools",
            "top_logprobs",
            "verbosity",
        ),
    ]
)
FIELDS: dict[Endpoint, frozenset[str]] = {
    Endpoint.CHAT: _SHARED | _CHAT,
    Endpoint.COMPLETIONS: _SHARED | {"best_of", "echo", "prompt", "suffix"},
    Endpoint.EMBEDDINGS: frozenset(["dimensions", "encoding_format", "input", "model", "user"]),
}
"""OpenAI's fields (openai 2.54.0) that LiteLLM 1.106.2 hands on, and Anthropic's `thinking`."""

GATEWAY_FIELDS = frozenset(["metadata"])
"""Read by the gateway itself; LiteLLM would give them to its callbacks only."""

_ADDRESSES = frozenset(["url", "image_url", "video_url", "audio_url", "file_id", "file_data"])
_OBJECTS = msgspec.json.Decoder(list[dict[str, object]])


def check(endpoint: Endpoint, body: Mapping[str, Raw]) -> None:
    """Raises `ClientError` 400 that names the field which may not pass."""
    for name in body:
        if name not in FIELDS.get(endpoint, frozenset()):
            raise _refused(name, f"`{name}` can't be sent through LiteLLM: leave it out.")
    if any(tool.get("type", "function") != "function" for tool in _objects(body, "tools")):
        raise _refused("tools", "Only tools of type `function` can be sent through LiteLLM.")
    for address in _addresses(_contents(body)):
        if not address.startswith("data:"):
            raise _refused("messages", "LiteLLM would fetch this address itself: give the content as a `data:` URL.")


def _refused(param: str, message: str) -> ClientError:
    return ClientError(400, "invalid_request_error", message, param=param)


def _objects(body: Mapping[str, Raw], name: str) -> list[dict[str, object]]:
    if name not in body or bytes(body[name]) == b"null":
        return []
    try:
        return _OBJECTS.decode(body[name])
    except UNREADABLE:
        raise _refused(name, f"`{name}` must be a list of objects.") from None


def _contents(body: Mapping[str, Raw]) -> list[object]:
    return [message.get("content") for message in _objects(body, "messages")]


def _addresses(value: object) -> Iterator[str]:
    """Whatever stands where LiteLLM looks for something to load."""
    if isinstance(value, list):
        for item in value:
            yield from _addresses(item)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in _ADDRESSES and isinstance(inner, str):
                yield inner
            else:
                yield from _addresses(inner)
