"""Step 1, parse: bytes become a `Request`, and the gateway's own requests to itself."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw, structs

from router.api.messages import request as anthropic
from router.api.responses.request import to_chat
from router.api.text import (
    NO_MEDIA,
    Chat,
    Completion,
    Embedding,
    Fields,
    LooseMessage,
    Media,
    Message,
    Readable,
    Responses,
    content,
    dense,
    items,
    limits,
    loose_content,
    others,
)
from router.errors import ClientError, invalid
from router.outcomes.judge import Ask
from router.types.clock import new_id
from router.types.decision import Served
from router.types.request import Caller, Endpoint, Limits, Modality, Passage, Request
from router.types.target import Capability

# Step 1: bytes → Request. Nothing is copied that need not change; whatever is wrong is named with its `param`.

MOST_CHOICES = 128
MOST_TOKENS = 10_000_000

_BODY = msgspec.json.Decoder(dict[str, Raw])
_SHAPES: dict[Endpoint, msgspec.json.Decoder[Any]] = {
    Endpoint.RESPONSES: msgspec.json.Decoder(Responses),
    Endpoint.COMPLETIONS: msgspec.json.Decoder(Completion),
    Endpoint.EMBEDDINGS: msgspec.json.Decoder(Embedding),
}
_CHAT, _LOOSE_CHAT = msgspec.json.Decoder(Chat[Message]), msgspec.json.Decoder(Chat[LooseMessage])
_ASCII = bytes(range(128))
_STRUCTURED = ("json_schema", "json_object")


def parse(endpoint: Endpoint, request_id: str, data: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Request:
    """Raises `ClientError` 400."""
    try:
        data.decode()
        body = _BODY.decode(data)
        if (translated := _TRANSLATED.get(endpoint)) is not None:
            return structs.replace(translated(request_id, body, headers), raw=data)
        if endpoint is Endpoint.CHAT:
            return structs.replace(_chat(request_id, body, data, headers), raw=data)
        fields = _SHAPES[endpoint].decode(data)
    except msgspec.ValidationError as error:
        raise _wrong_type(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(None, f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise invalid(None, "The body is nested too deeply.") from None
    return structs.replace(_plain(request_id, body, fields, headers), raw=data)


def _wrong_type(error: msgspec.ValidationError) -> ClientError:
    """msgspec says: Expected `int`, got `str` - at `$.n`; or: Object missing required field `model`."""
    what, _, path = str(error).partition(" - at `$")
    missing = what.removeprefix("Object missing required field `").rstrip("`") if "required field" in what else ""
    param = ".".join(part for part in (path.rstrip("`"), missing) if part).lstrip(".")
    return invalid(param or None, f"{what}{f' in {param}' if param else ''}.")


def _chat(
    request_id: str,
    body: dict[str, Raw],
    data: bytes,
    headers: Iterable[tuple[bytes, bytes]],
    endpoint: Endpoint = Endpoint.CHAT,
) -> Request:
    """`body` and `data` are the same. Raises `msgspec.ValidationError` for what is not OpenAI's."""
    fields: Chat[Any]
    try:
        fields = _CHAT.decode(data)
        texts = content(fields.messages)
    except msgspec.ValidationError:
        fields = _LOOSE_CHAT.decode(data)
        texts = loose_content(fields.messages, body.get("messages", _NONE))
    if not fields.messages:
        raise invalid("messages", "Send at least one message.")
    needs = _needs(fields, texts.kinds)
    # What is made into tokens: messages without their media, tools, and the schema of the answer.
    prompt = bytes(body["messages"]) if texts.media is NO_MEDIA else _text(texts.read)
    if needs is not _PLAIN_CHAT:
        prompt = b"".join((prompt, *(bytes(body[name]) for name in _SCHEMAS if name in body)))
    others(body, "messages", texts.read)
    cap = fields.max_completion_tokens if fields.max_completion_tokens is not None else fields.max_tokens
    return _request(
        endpoint,
        request_id,
        body,
        fields,
        headers,
        read=texts.read,
        prompt=prompt,
        media=texts.media,
        needs=needs,
        max_output=_tokens(cap, "max_completion_tokens"),
        effort=fields.reasoning_effort,
    )


def _responses(request_id: str, body: dict[str, Raw], headers: Iterable[tuple[bytes, bytes]]) -> Request:
    try:
        chat = to_chat(body)
    except ClientError as error:
        return _native(request_id, body, headers, error)
    request = _chat(request_id, chat, msgspec.json.encode(chat), headers, Endpoint.RESPONSES)
    return structs.replace(request, body=body, chat=chat)


def _messages(request_id: str, body: dict[str, Raw], headers: Iterable[tuple[bytes, bytes]]) -> Request:
    translated = anthropic.to_chat(body)
    request = _chat(request_id, translated.chat, msgspec.json.encode(translated.chat), headers, Endpoint.MESSAGES)
    own = request.limits
    budgets = [tokens for tokens in (translated.thinking_budget, own.thinking_budget) if tokens is not None]
    session = own.session or translated.session
    if not budgets and session == own.session:
        return request
    return structs.replace(
        request, limits=structs.replace(own, thinking_budget=min(budgets, default=None), session=session)
    )


def _native(
    request_id: str, body: dict[str, Raw], headers: Iterable[tuple[bytes, bytes]], unsaid: ClientError
) -> Request:
    """A request that only a provider's own Responses endpoint can serve: built-in tools, stored prompts, grammars."""
    fields = _SHAPES[Endpoint.RESPONSES].decode(msgspec.json.encode(body))
    read = Readable()
    if "input" in body:
        items(body["input"], read)
    others(body, "input", read)
    if body.get("prompt", _NULL) != _NULL:
        read.unscannable.add(Modality.FILE)
    request = _request(
        Endpoint.RESPONSES,
        request_id,
        body,
        fields,
        headers,
        read=read,
        prompt=_text(read),
        media=_native_media(body),
        needs=_NATIVE,
        max_output=_tokens(fields.max_output_tokens, "max_output_tokens"),
        effort=fields.reasoning.effort if fields.reasoning else None,
    )
    return structs.replace(request, unsaid=(unsaid.message, unsaid.param))


def _plain(
    request_id: str, body: dict[str, Raw], fields: Completion | Embedding, headers: Iterable[tuple[bytes, bytes]]
) -> Request:
    """A completion or an embedding, whose prompt is one text, or several, or numbers of a tokenizer."""
    if isinstance(fields, Completion):
        endpoint, name, prompt, best_of = Endpoint.COMPLETIONS, "prompt", fields.prompt, fields.best_of or 1
        needs = {Capability.COMPLETIONS} | ({Capability.LOGPROBS} if fields.logprobs else set())
        cap = _tokens(fields.max_tokens, "max_tokens")
    else:
        endpoint, name, prompt, best_of = Endpoint.EMBEDDINGS, "input", fields.input, 1
        needs, cap = {Capability.EMBEDDINGS}, None
    if prompt is None or prompt in ("", []):
        raise invalid(name, "Send a prompt." if name == "prompt" else "Send an input.")
    if fields.stream and endpoint is Endpoint.EMBEDDINGS:
        raise invalid("stream", "Embeddings are not streamed.")
    read = Readable()
    if isinstance(prompt, str):
        read.passages.append(Passage((name,), prompt))
    else:
        read.passages += [Passage((name, number), text) for number, text in enumerate(prompt) if isinstance(text, str)]
        if len(read.passages) < len(prompt):
            read.unscannable.add(Modality.TOKENS)
    others(body, name, read)
    request = _request(
        endpoint,
        request_id,
        body,
        fields,
        headers,
        read=read,
        prompt=bytes(body[name]),
        media=NO_MEDIA,
        needs=frozenset(needs),
        max_output=cap,
    )
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    return request if prompts == best_of == 1 else structs.replace(request, prompts=prompts, best_of=best_of)


def _request(
    endpoint: Endpoint,
    request_id: str,
    body: dict[str, Raw],
    fields: Fields,
    headers: Iterable[tuple[bytes, bytes]],
    *,
    read: Readable,
    prompt: bytes,
    media: Media,
    needs: frozenset[Capability],
    max_output: int | None,
    effort: str | None = None,
) -> Request:
    if not fields.model:
        raise invalid("model", "Name a model: `auto`, a route, or a target of the policy.")
    choices = 1 if fields.n is None else fields.n
    if not 1 <= choices <= MOST_CHOICES:
        raise invalid("n", f"n must be from 1 to {MOST_CHOICES}.")
    # One character is found many times faster than several.
    caches = "cache_control" in body or (b"_" in prompt and _CACHE in prompt)
    return Request(
        id=request_id,
        endpoint=endpoint,
        model=fields.model,
        body=body,
        passages=(*read.passages, *read.documents),
        unscannable=frozenset(read.unscannable) if read.unscannable else _ALL_READ,
        prompt_bytes=len(prompt),
        dense_bytes=dense(prompt),
        wide_bytes=0 if prompt.isascii() else len(prompt.translate(None, _ASCII)),
        images=media.images,
        audio_seconds=media.seconds,
        file_bytes=media.files,
        caches=caches,
        caches_long=caches and _LONG in prompt,
        service_tier=fields.service_tier or "",
        needs=needs if choices == 1 else needs | {Capability.N},
        stream=bool(fields.stream),
        stream_usage=fields.stream_options is not None and bool(fields.stream_options.include_usage),
        n=choices,
        max_output=max_output,
        effort=effort,
        limits=limits(headers, fields.metadata),
    )


def _text(read: Readable) -> bytes:
    return "\n".join([*(passage.text for passage in read.passages), *read.bare]).encode()


def _native_media(body: dict[str, Raw]) -> Media:
    """A conversation, a prompt or a file that the provider stores may be of any size."""
    sent = bytes(body.get("input", b""))
    stored = any(name in body for name in _STORED) or b'"file_id"' in sent or b'"file_url"' in sent
    data = sent.count(b'"input_file"') and len(sent)
    return Media(sent.count(b'"input_image"'), 0, None if stored else data)


def _tokens(value: int | None, param: str) -> int | None:
    if value is not None and not 1 <= value <= MOST_TOKENS:
        raise invalid(param, f"{param} must be from 1 to {MOST_TOKENS}.")
    return value


def _needs(fields: Chat[Any], kinds: frozenset[str]) -> frozenset[Capability]:
    needs = {Capability.CHAT}
    if fields.tools or fields.functions:
        needs.add(Capability.TOOLS)
    if fields.response_format is not None and fields.response_format.type in _STRUCTURED:
        needs.add(Capability.JSON_SCHEMA)
    if fields.logprobs:
        needs.add(Capability.LOGPROBS)
    if "image_url" in kinds:
        needs.add(Capability.VISION)
    if "input_audio" in kinds:
        needs.add(Capability.AUDIO)
    return frozenset(needs) if len(needs) > 1 else _PLAIN_CHAT


_CACHE, _LONG = b"cache_control", b"1h"
"""Anthropic's marks, which OpenRouter and LiteLLM take over: what they stand on is written to a cache."""
_NULL, _NONE = Raw(b"null"), Raw(b"[]")
_ALL_READ: frozenset[Modality] = frozenset()
_SCHEMAS = ("tools", "functions", "response_format")
_STORED = ("previous_response_id", "conversation", "prompt")
_NATIVE = frozenset({Capability.CHAT, Capability.RESPONSES})
_PLAIN_CHAT = frozenset({Capability.CHAT})
_TRANSLATED: dict[Endpoint, Callable[[str, dict[str, Raw], Iterable[tuple[bytes, bytes]]], Request]] = {
    Endpoint.RESPONSES: _responses,
    Endpoint.MESSAGES: _messages,
}


# Requests that the gateway asks of itself: read, judged and served as any client's are.


def asking(serve: Callable[[Request, Caller], Awaitable[Served]]) -> Ask:
    """`serve` raises for a request that is refused or fails."""

    async def ask(body: bytes, caller: Caller, limits: Limits) -> bytes:
        request = parse(Endpoint.CHAT, new_id(), body, ())
        # A key that is bound to routes may name no target, so no judge; one that is bound to targets only those.
        allowance = caller.allowance and structs.replace(caller.allowance, rpm=None, tpm=None, parallel=None)
        asks = structs.replace(caller, routes=frozenset(), allowance=allowance)
        served = await serve(structs.replace(request, limits=limits), asks)
        return msgspec.json.encode(served.body)

    return ask
