"""Step 1, parse: request bytes become a `Request`; also the requests that the gateway sends to itself."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from json import loads
from typing import Any

import msgspec
from msgspec import Raw, structs

from router.api import messages
from router.api.responses.request import to_chat
from router.api.text import (
    Chat,
    Completion,
    EmbeddingFields,
    Fields,
    LooseMessage,
    ReadableContent,
    Responses,
    SentMessage,
    content,
    dense,
    limits,
    loose_content,
    of_messages,
    others,
)
from router.classify.views import dotted, passages_in
from router.errors import ClientError, invalid, unreadable
from router.outcomes.judge import Ask
from router.types.attempt import ASCII
from router.types.clock import new_id
from router.types.decision import Served
from router.types.request import NO_LIMITS, Caller, Endpoint, Limits, Message, Modality, Passage, Request
from router.types.target import Capability

# Values that need no change are not copied. Errors name the field at fault in `param`.

MOST_CHOICES = 128
MOST_TOKENS = 10_000_000

_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_BODY = msgspec.json.Decoder(dict[str, Raw])
_RESPONSES = msgspec.json.Decoder(Responses)
_COMPLETION, _EMBEDDING = msgspec.json.Decoder(Completion), msgspec.json.Decoder(EmbeddingFields)
_CHAT, _LOOSE_CHAT = msgspec.json.Decoder(Chat[SentMessage]), msgspec.json.Decoder(Chat[LooseMessage])
_STRUCTURED = ("json_schema", "json_object")
Body = dict[str, Raw]
Make = Callable[..., Request]
"""`_request` with the id, endpoint, bytes and headers of the HTTP request already bound."""


def parse(endpoint: Endpoint, request_id: str, data: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Request:
    """Returns the request that `data` holds. Raises `ClientError` 400 if it can't be read or has a wrong field."""
    try:
        data.decode()
        return _READERS[endpoint](partial(_request, request_id, endpoint, data, headers), _BODY.decode(data), data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused(error, data) from None


def refused(error: Exception, data: bytes) -> ClientError:
    """Returns the 400 for an unreadable body; names a lone surrogate, which msgspec reports as truncated data."""
    with suppress(ValueError, RecursionError):
        for passage in passages_in(loads(data)) if type(error) is msgspec.DecodeError else ():
            if half := next((letter for letter in passage.text if "\ud800" <= letter <= "\udfff"), ""):
                place = dotted(passage.path).encode(errors="replace").decode()
                return invalid(place, f"\\u{ord(half):x} in {place} is half of a character: send both halves, or none.")
    return unreadable(error)


def _chat(make: Make, body: Body, data: bytes, stated: Limits = NO_LIMITS) -> Request:
    """Returns a chat request; `body` holds the fields of `data`. Raises `msgspec.ValidationError` for a wrong type."""
    fields: Chat[Any]
    messages: Sequence[Message] | None = None
    try:
        fields = _CHAT.decode(data)
        read, messages = content(fields.messages), fields.messages
    except msgspec.ValidationError:
        fields = _LOOSE_CHAT.decode(data)
        read = loose_content(fields.messages, body.get("messages", _NONE))
    if not fields.messages:
        raise invalid("messages", "Send at least one message.")
    needs = _needs(fields, read.kinds) if read.kinds or not _NEEDING.isdisjoint(body) else _PLAIN_CHAT
    # The text that becomes input tokens: messages without their media, tools, and the schema of the answer.
    prompt = _text(read) if read.images or read.seconds or read.files != 0 else _even(body["messages"])
    if needs is not _PLAIN_CHAT:
        prompt = b"".join((prompt, *(_even(body[name]) for name in _SCHEMAS if name in body)))
    others(body, "messages", read)
    cap = fields.max_completion_tokens if fields.max_completion_tokens is not None else fields.max_tokens
    return make(body, fields, read, prompt, needs, cap, stated, effort=fields.reasoning_effort, messages=messages)


def _responses(make: Make, body: Body, data: bytes) -> Request:
    try:
        chat = to_chat(body, data)
    except ClientError as error:
        return _native(make, body, data, error)
    return structs.replace(_chat(make, chat, msgspec.json.encode(chat)), body=body, chat=chat)


def _messages(make: Make, body: Body, data: bytes) -> Request:
    chat, stated = messages.to_chat(body, data)
    return _chat(make, chat, msgspec.json.encode(chat), stated)


def _native(make: Make, body: Body, data: bytes, no_chat_reason: ClientError) -> Request:
    """Returns a request that only a native Responses endpoint can serve: built-in tools, stored prompts, grammars."""
    fields, read = _RESPONSES.decode(data), ReadableContent()
    if "input" in body:
        of_messages(list(passages_in(msgspec.json.decode(body["input"]), ("input",))), read)
    others(body, "input", read)
    if body.get("prompt", _NULL) != _NULL:
        read.unscannable.add(Modality.FILE)
    # A conversation, prompt or file that the provider stores may have any size.
    sent = bytes(body.get("input", b""))
    stored = any(name in body for name in _STORED) or b'"file_id"' in sent or b'"file_url"' in sent
    files = sent.count(b'"input_file"') and len(sent)
    read.images, read.files = sent.count(b'"input_image"'), None if stored else files
    effort, why = fields.reasoning.effort if fields.reasoning else None, (no_chat_reason.message, no_chat_reason.param)
    return make(body, fields, read, _text(read), _NATIVE, fields.max_output_tokens, effort=effort, no_chat_reason=why)


def _completion(make: Make, body: Body, data: bytes) -> Request:
    fields = _COMPLETION.decode(data)
    needs = frozenset({Capability.COMPLETIONS} | ({Capability.LOGPROBS} if fields.logprobs else set()))
    return _plain(make, body, fields, "prompt", needs, fields.max_tokens, fields.best_of or 1)


def _embedding(make: Make, body: Body, data: bytes) -> Request:
    fields = _EMBEDDING.decode(data)
    if fields.stream:
        raise invalid("stream", "Embeddings are not streamed.")
    return _plain(make, body, fields, "input", frozenset({Capability.EMBEDDINGS}))


def _plain(
    make: Make,
    body: Body,
    fields: Completion | EmbeddingFields,
    name: str,
    needs: frozenset[Capability],
    cap: int | None = None,
    best_of: int = 1,
) -> Request:
    """Returns a request whose prompt, in the field `name`, is a text, a list of texts, or token ids."""
    prompt = fields.prompt if isinstance(fields, Completion) else fields.input
    if prompt is None or prompt in ("", []):
        raise invalid(name, f"Send {'a prompt' if name == 'prompt' else 'an input'}.")
    read = ReadableContent()
    if isinstance(prompt, str):
        read.passages.append(Passage((name,), prompt))
    else:
        read.passages += [Passage((name, number), text) for number, text in enumerate(prompt) if isinstance(text, str)]
        if len(read.passages) < len(prompt):
            read.unscannable.add(Modality.TOKENS)
    others(body, name, read)
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    return make(body, fields, read, bytes(body[name]), needs, cap, prompts=prompts, best_of=best_of)


def _request(
    request_id: str,
    endpoint: Endpoint,
    data: bytes,
    headers: Iterable[tuple[bytes, bytes]],
    body: Body,
    fields: Fields,
    read: ReadableContent,
    prompt: bytes,
    needs: frozenset[Capability],
    max_output: int | None,
    stated: Limits = NO_LIMITS,
    **more: Any,
) -> Request:
    """Returns the `Request`. `stated`: limits in an Anthropic body, merged with those of headers and `metadata`;
    `more`: fields that only some endpoints have."""
    if not fields.model:
        raise invalid("model", "Name a model: `auto`, a route, or a target of the policy.")
    choices = 1 if fields.n is None else fields.n
    if not 1 <= choices <= MOST_CHOICES:
        raise invalid("n", f"n must be from 1 to {MOST_CHOICES}.")
    if max_output is not None and not 1 <= max_output <= MOST_TOKENS:
        name = next(name for name in _CAPS if name in body)
        raise invalid(name, f"{name} must be from 1 to {MOST_TOKENS}.")
    caches, own = _CACHE in data, limits(headers, fields.metadata)
    if stated is not NO_LIMITS:
        budgets = [tokens for tokens in (stated.thinking_budget, own.thinking_budget) if tokens is not None]
        session = own.session or stated.session
        own = structs.replace(own, thinking_budget=min(budgets, default=None), session=session)
    return Request(
        id=request_id,
        endpoint=endpoint,
        model=fields.model,
        body=body,
        raw=data,
        passages=(*read.passages, *read.documents),
        unscannable=frozenset(read.unscannable) if read.unscannable else _ALL_READ,
        prompt_bytes=len(prompt),
        dense_bytes=dense(prompt),
        wide_bytes=0 if prompt.isascii() else len(prompt.translate(None, ASCII)),
        images=read.images,
        low_images=read.low_images,
        audio_seconds=read.seconds,
        file_bytes=read.files,
        caches=caches,
        caches_long=caches and _LONG in data,
        service_tier=fields.service_tier or "",
        needs=needs if choices == 1 else needs | {Capability.N},
        stream=bool(fields.stream),
        stream_usage=fields.stream_options is not None and bool(fields.stream_options.include_usage),
        n=choices,
        max_output=max_output,
        limits=own,
        **more,
    )


def _even(raw: Raw) -> bytes:
    r"""Returns the JSON with uniform spacing and UTF-8 instead of `\u` escapes, whatever the client's formatting."""
    data = bytes(raw)
    return msgspec.json.format(msgspec.json.encode(msgspec.json.decode(data)) if b"\\u" in data else data, indent=0)


def _text(read: ReadableContent) -> bytes:
    return "\n".join([*(passage.text for passage in read.passages), *read.bare]).encode()


def _needs(fields: Chat[Any], kinds: Collection[str]) -> frozenset[Capability]:
    form = fields.response_format
    uses = {
        Capability.TOOLS: fields.tools or fields.functions,
        Capability.JSON_SCHEMA: form is not None and form.type in _STRUCTURED,
        Capability.LOGPROBS: fields.logprobs,
        Capability.VISION: "image_url" in kinds,
        Capability.AUDIO: "input_audio" in kinds,
    }
    return _PLAIN_CHAT.union(need for need in uses if uses[need]) if any(uses.values()) else _PLAIN_CHAT


_CACHE, _LONG = b"cache_control", b'"1h"'
"""Anthropic's cache markers, which OpenRouter and LiteLLM use too: what they mark is written to a prompt cache."""
_NULL, _NONE = Raw(b"null"), Raw(b"[]")
_ALL_READ: frozenset[Modality] = frozenset()
_SCHEMAS = ("tools", "functions", "response_format")
_NEEDING = frozenset((*_SCHEMAS, "logprobs"))
_STORED = ("previous_response_id", "conversation", "prompt")
_NATIVE = frozenset({Capability.CHAT, Capability.RESPONSES})
_PLAIN_CHAT = frozenset({Capability.CHAT})
_READERS: dict[Endpoint, Callable[[Make, Body, bytes], Request]] = {
    Endpoint.CHAT: _chat,
    Endpoint.RESPONSES: _responses,
    Endpoint.MESSAGES: _messages,
    Endpoint.COMPLETIONS: _completion,
    Endpoint.EMBEDDINGS: _embedding,
}


# Requests that the gateway sends to itself: parsed, decided and served like those of a client.


def asking(serve: Callable[[Request, Caller], Awaitable[Served]]) -> Ask:
    """Returns a function that sends chat requests through `serve`, which raises if one is refused or fails."""

    async def ask(body: bytes, caller: Caller, limits: Limits) -> bytes:
        request = parse(Endpoint.CHAT, new_id(), body, ())
        # The judge is a target: a key limited to routes could not name it. A limit to targets still applies.
        allowance = caller.allowance and structs.replace(caller.allowance, rpm=None, tpm=None, parallel=None)
        asks = structs.replace(caller, routes=frozenset(), allowance=allowance)
        return msgspec.json.encode((await serve(structs.replace(request, limits=limits), asks)).body)

    return ask
