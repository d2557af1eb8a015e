"""OpenAI's wire and its many relatives: what must change in a request or an answer changes, all other bytes pass.

Where a provider departs from OpenAI is data (`Quirks`), never code.
"""

import time
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache

import msgspec
from msgspec import Raw

from adapters import emulation
from adapters.chat import left_out
from adapters.failure import UNREADABLE, failure, malformed
from adapters.openai_responses import ResponsesDecoder, respond
from adapters.openai_stream import (
    BLANK,
    ID_PREFIXES,
    NO_CHOICES,
    NULL,
    ROWS,
    ChatDecoder,
    estimate_thoughts,
    parse,
    plain,
    to_raw,
    without_usage,
)
from adapters.thinking import ALWAYS_ON, applied, fields_of, members
from adapters.usage import canonical, every_choice
from router.errors import UpstreamFailure
from router.types.attempt import Call, StreamDecoder, TargetReply, UpstreamRequest
from router.types.clock import new_id
from router.types.request import Endpoint
from router.types.target import Contract

PATHS = {
    Endpoint.CHAT: "/chat/completions",
    Endpoint.COMPLETIONS: "/completions",
    Endpoint.EMBEDDINGS: "/embeddings",
    Endpoint.RESPONSES: "/responses",
}
"""Below a base URL that ends in the API's version, as the official client wants it."""

_OBJECTS = {Endpoint.CHAT: "chat.completion", Endpoint.COMPLETIONS: "text_completion", Endpoint.EMBEDDINGS: "list"}
_STORING = (Endpoint.CHAT, Endpoint.RESPONSES)
"""Where `store` is a field; others refuse it."""
_BEYOND = (b"(?=", b"(?!", b"(?<")
"""Patterns that look around: no grammar can say them, and the engine would refuse the request."""
_INSIDE = "messages."
_FALSE, _TRUE = Raw(b"false"), Raw(b"true")
_LIST = msgspec.json.Decoder(list[Raw])
_quoted = lru_cache(1_024)(to_raw)
"""Names of models: of targets, and as clients call them."""


class OpenAICompatible:
    """The adapter for chat, completions, embeddings and, where `quirks.responses`, responses."""

    failure = staticmethod(failure)

    def encode(self, call: Call) -> UpstreamRequest:
        """Raises `ClientError` 400 for tools that can't be put into a grammar (`quirks.grammar_tools`)."""
        if call.target.prompt is not None:
            call = emulation.completion(call)
        endpoint, target, quirks = call.endpoint, call.target, call.target.provider.quirks
        body, refuses = dict(call.body), quirks.refuses
        dropped = () if refuses.isdisjoint(body) else left_out(call, refuses)
        for name in dropped:
            del body[name]
        if members_refused := _inside(refuses):
            body = _without_members(body, members_refused)
        body["model"] = _quoted(target.model.name)
        if quirks.grammar_tools and endpoint is Endpoint.CHAT:
            body = emulation.with_grammar(body)
        if quirks.strict_tools:
            body = _with_strict(body)
        if call.private:
            _keep_private(call, body)
        thinking = "none"
        if endpoint is not Endpoint.EMBEDDINGS:
            _stream(call, body)
            _cap(call, body)
            thinking = _think(call, body)
        if endpoint is Endpoint.RESPONSES:
            body["store"] = _FALSE
        headers = {"content-type": "application/json"}
        if target.api_key is not None:
            headers["authorization"] = f"Bearer {target.api_key.reveal()}"
        for name, value in target.headers.items():
            headers[name.lower()] = value
        sent = msgspec.json.encode(body)
        return UpstreamRequest(
            "POST", PATHS[endpoint], tuple(headers.items()), sent, thinking, call.request_id, dropped, body
        )

    def decode(self, call: Call, body: bytes) -> TargetReply:
        if call.endpoint is Endpoint.RESPONSES:
            return respond(call, body)
        if emulation.completes(call):
            return emulation.as_chat(self.decode(emulation.as_completion(call), body))
        fields, answer = parse(body)
        without_usage(fields, answer)
        plain(fields, answer)
        _identify(call, fields)
        report = answer.report
        usage = None if report is None else canonical(report)
        if usage is not None and call.target.provider.quirks.usage_counts_one_choice:
            usage = every_choice(usage, call.n)
        if call.endpoint is Endpoint.EMBEDDINGS:
            _check_vectors(call, fields)
            return TargetReply(body=fields, usage=usage, model_served=answer.model or "")
        has_answer, texts = False, list[str]()
        for choice in answer.choices or ():
            if (choice.message if call.endpoint is Endpoint.CHAT else choice.text) is None:
                raise UpstreamFailure(malformed(NO_CHOICES))
            has_answer = has_answer or choice.answers
            texts.append(choice.written)
        if not answer.choices:
            raise UpstreamFailure(malformed(NO_CHOICES))
        if usage is not None and call.target.provider.local:
            usage = estimate_thoughts(call, usage, answer.choices)
        reply = TargetReply(
            body=fields,
            usage=usage,
            finish_reason=answer.choices[0].finish_reason or "",
            has_answer=has_answer,
            text="".join(texts),
            model_served=answer.model or "",
        )
        return emulation.as_turns(reply) if emulation.uses_grammar(call) else reply

    def stream(self, call: Call) -> StreamDecoder:
        if call.endpoint is Endpoint.RESPONSES:
            return ResponsesDecoder(call)
        if emulation.completes(call):
            return emulation.CompletingStream(call)
        return emulation.GrammarStream(call) if emulation.uses_grammar(call) else ChatDecoder(call)


@lru_cache
def _inside(refuses: Set[str]) -> tuple[str, ...]:
    """What a provider refuses inside messages and tools: `messages.NAME` of `refuses`."""
    return tuple(name[len(_INSIDE) :] for name in refuses if name.startswith(_INSIDE))


def _without_members(body: dict[str, Raw], refused: Sequence[str]) -> dict[str, Raw]:
    changed: dict[str, Raw] = {}
    for member in refused:
        for field in ("messages", "tools"):
            raw = changed.get(field) or body.get(field, NULL)
            if member.encode() in bytes(raw):
                changed[field] = to_raw([_without(row, member) for row in ROWS.decode(raw)])
    return body | changed if changed else body


def _without(row: dict[str, Raw], member: str) -> dict[str, Raw]:
    """A message without a member of it and of its parts; or a tool."""
    left = {name: raw for name, raw in row.items() if name != member}
    content = left.get("content", NULL)
    if bytes(content)[:1] == b"[":
        left["content"] = to_raw([_without(part, member) for part in ROWS.decode(content)])
    return left


def _with_strict(body: dict[str, Raw]) -> dict[str, Raw]:
    """Forced calls have their tools `strict`, unless the client said whether they are; what can't be read passes.

    vLLM 0.32 binds a call's arguments to their schema only then: else a forced call may have anything for arguments.
    """
    choice = bytes(body.get("tool_choice", b""))
    if "tools" not in body or not (choice == b'"required"' or choice.startswith(b"{")):
        return body
    try:
        tools = ROWS.decode(body["tools"])
    except UNREADABLE:
        return body
    for tool in tools:
        function = members(tool.get("function"))
        schema = bytes(function.get("parameters", NULL))
        if "strict" not in function and schema not in BLANK and not any(part in schema for part in _BEYOND):
            tool["function"] = to_raw({**function, "strict": _TRUE})
    return body | {"tools": to_raw(tools)}


def _keep_private(call: Call, body: dict[str, Raw]) -> None:
    """Says that nothing may be kept or trained on, in the provider's own words, whatever the client says of it."""
    body.pop("prompt_cache_retention", None)  # the long one is kept in storage for a day
    for name, value in call.target.provider.quirks.private.items():
        if name != "store" or call.endpoint in _STORING:
            body[name] = to_raw({**members(body.get(name)), **value} if isinstance(value, dict) else value)


def _stream(call: Call, body: dict[str, Raw]) -> None:
    """`stream` as this call has it, and a request for usage, without which the answer can't be charged."""
    body.pop("stream", None)
    options = body.pop("stream_options", None)
    if not call.stream:
        return
    body["stream"] = _TRUE
    asks = call.target.provider.quirks.stream_usage and call.endpoint is not Endpoint.RESPONSES
    if asks:
        body["stream_options"] = to_raw({**members(options), "include_usage": True})
    elif options is not None:
        body["stream_options"] = options


def _cap(call: Call, body: dict[str, Raw]) -> None:
    """The bound on output under the provider's name for it: ours, else the client's own."""
    if call.endpoint is Endpoint.RESPONSES:
        stated, name = body.get("max_output_tokens"), "max_output_tokens"
    else:
        newer, older = body.pop("max_completion_tokens", None), body.pop("max_tokens", None)
        stated = older if newer is None or bytes(newer) == b"null" else newer
        if stated is not None and bytes(stated) == b"null":
            stated = None
        name = call.target.provider.quirks.max_tokens_field if call.endpoint is Endpoint.CHAT else "max_tokens"
    cap = stated if call.max_output is None else to_raw(call.max_output)
    if cap is not None:
        body[name] = cap


def _think(call: Call, body: dict[str, Raw]) -> str:
    """Replaces the client's effort by what the target's contract makes of it; returns what the body then says."""
    target, control = call.target, applied(call)
    body.pop("reasoning_effort", None)
    if target.engine is not None and not target.engine.thinking_exact:
        body.pop("thinking_token_budget", None)  # the client's own: an engine that can't keep to it refuses the request
    if target.model.thinking.contract is Contract.NONE and call.endpoint is Endpoint.RESPONSES:
        body.pop("reasoning", None)
    fields = fields_of(call, control, body)
    for name, value in fields.items():
        body[name] = to_raw(value)
    return control.text if fields or control is ALWAYS_ON else "none"


def _identify(call: Call, fields: dict[str, Raw]) -> None:
    """The client's name for the model, and what a client expects but the provider left out."""
    fields["model"] = _quoted(call.model)
    if bytes(fields.get("object", NULL)) in BLANK:
        fields["object"] = to_raw(_OBJECTS[call.endpoint])
    if call.endpoint is not Endpoint.EMBEDDINGS:
        if bytes(fields.get("id", NULL)) in BLANK:
            fields["id"] = to_raw(ID_PREFIXES[call.endpoint] + new_id())
        if bytes(fields.get("created", NULL)) in BLANK:
            fields["created"] = to_raw(int(time.time()))


def _check_vectors(call: Call, fields: Mapping[str, Raw]) -> None:
    """As many vectors as texts: a list of numbers is one text, as tokens."""
    try:
        vectors = ROWS.decode(fields.get("data", NULL))
    except UNREADABLE:
        vectors = []
    texts = _LIST.decode(call.body["input"]) if bytes(call.body.get("input", NULL))[:1] == b"[" else []
    several = bool(texts) and bytes(texts[0])[:1] in (b'"', b"[")
    sound = all(bytes(vector.get("embedding", NULL))[:1] in (b'"', b"[") for vector in vectors)
    if not sound or len(vectors) != (len(texts) if several else 1):
        raise UpstreamFailure(malformed("The provider's answer holds no embedding for each text."))
