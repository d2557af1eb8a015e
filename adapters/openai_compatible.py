"""The adapter of OpenAI's wire and its relatives, with their thinking controls and strict tools."""

import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from adapters.completing import CompletingStream, answered, as_completion, completes, completion
from adapters.failure import UNREADABLE, failure, malformed
from adapters.grammar import GrammarStream, applies, called, with_grammar
from adapters.openai_responses import ResponsesStream, respond
from adapters.openai_stream import (
    BLANK,
    CHOICES,
    ID_PREFIXES,
    NO_CHOICES,
    NULL,
    Answer,
    ChatStream,
    counted,
    parse,
    plain,
    to_raw,
    without_members,
    without_usage,
)
from adapters.thinking import ALWAYS_ON, Applied, applied
from adapters.usage import Report, canonical, every_choice
from router.errors import UpstreamFailure
from router.types.attempt import Call, Reply, StreamDecoder, UpstreamRequest, Usage
from router.types.clock import new_id
from router.types.request import Endpoint
from router.types.target import EFFORTS, Contract, ThinkingField

# The thinking control in the fields of OpenAI's relatives: one writer a `ThinkingField`.
#
# Names and values: vLLM 0.32, DashScope 2.0.2, DeepSeek, Moonshot, OpenRouter 1.3.84, Gemini's compatible endpoint.

Fields = dict[str, object]
_OBJECT = msgspec.json.Decoder(dict[str, Raw])


def write(call: Call, control: Applied, body: Mapping[str, Raw]) -> Fields:
    """The fields to set in `body` so that the provider obeys; empty if its wire has no words for this control."""
    field = call.target.provider.quirks.thinking_field
    if field is ThinkingField.TOKEN_BUDGET:
        return _unasked(call, body) if control.on is None else _token_budget(call, control, body)
    if call.endpoint is Endpoint.RESPONSES and field is ThinkingField.REASONING_EFFORT:
        field = ThinkingField.REASONING
    return _WRITERS[field](control, body)


def members(raw: Raw | None) -> dict[str, Raw]:
    """The members of a JSON object; {} for anything else."""
    try:
        return _OBJECT.decode(raw) if raw is not None else {}
    except UNREADABLE:
        return {}


def _word(control: Applied) -> Fields:
    """Where a switch turns thinking on, a word beside it says how much."""
    return {"reasoning_effort": control.effort} if control.on and control.effort else {}


def _token_budget(call: Call, control: Applied, body: Mapping[str, Raw]) -> Fields:
    """Top level: inside `chat_template_kwargs` vLLM ignores the budget (vllm-project/vllm#50166)."""
    template: Fields = {**members(body.get(_TEMPLATE)), "enable_thinking": control.on}
    budget: Fields = {}
    if control.budget is not None:
        # vLLM counts what the template wrote after the opening mark, but not what it adds when it cuts a thought off.
        engine = call.target.engine
        extra = 0 if engine is None else engine.thinking_written - engine.thinking_forced
        budget = {"thinking_token_budget": max(control.budget + extra, 0)}
    word = {name: _MOST if word == EFFORTS[-1] else word for name, word in _word(control).items()}
    return {_TEMPLATE: template, **budget, **word}


_TEMPLATE = "chat_template_kwargs"
_MOST = "max"
"""vLLM knows no effort beyond."""


def _unasked(call: Call, body: Mapping[str, Raw]) -> Fields:
    """Parsers go by what the request says, not by what the template did: unsaid, all of an answer may be a thought."""
    engine, thinks = call.target.engine, call.target.model.thinking.contract is not Contract.NONE
    parsed = engine is not None and engine.thinking_exact
    if call.endpoint is not Endpoint.CHAT or not (thinks or parsed):
        return {}
    stated: Fields = {**members(body.get(_TEMPLATE))}
    return {_TEMPLATE: {"enable_thinking": True, **stated} if thinks else {**stated, "enable_thinking": False}}


def _enable_thinking(control: Applied, body: Mapping[str, Raw]) -> Fields:
    if control.on is None:
        return {}
    budget: Fields = {} if control.budget is None else {"thinking_budget": control.budget}
    return {"enable_thinking": control.on, **budget, **_word(control)}


def _thinking_type(control: Applied, body: Mapping[str, Raw]) -> Fields:
    if control.on is None:
        return {}
    thinking: Fields = {"type": "enabled" if control.on else "disabled"}
    if control.budget is not None:
        thinking["budget_tokens"] = control.budget
    return {"thinking": thinking, **_word(control)}


def _reasoning(control: Applied, body: Mapping[str, Raw]) -> Fields:
    """`effort`, `max_tokens` and `enabled` exclude each other; what else the client put there (`summary`) stays."""
    if control.on is None:
        return {}
    size: Fields = {"effort": control.effort} if control.effort else {"enabled": True}
    if control.budget is not None:
        size = {"max_tokens": control.budget}
    kept: Fields = {name: raw for name, raw in members(body.get("reasoning")).items() if name not in _SIZES}
    return {"reasoning": {**kept, **size}}


_SIZES = ("effort", "max_tokens", "enabled")


def _thinking_config(control: Applied, body: Mapping[str, Raw]) -> Fields:
    """Google's `extra_body`: a budget or a level, never both; a budget of 0 turns thinking off."""
    if control.on is None:
        return {}
    extra = members(body.get("extra_body"))
    google = members(extra.get("google"))
    config = members(google.get("thinking_config"))
    size: Fields = {"thinking_budget": control.budget or (-1 if control.on else 0)}
    if control.on and control.effort:
        size = {"thinking_level": control.effort}
    kept: Fields = {name: raw for name, raw in config.items() if name not in ("thinking_level", "thinking_budget")}
    inner: Fields = {**google, "thinking_config": {**kept, **size}}
    outer: Fields = {**extra, "google": inner}
    return {"extra_body": outer}


_WRITERS: dict[ThinkingField, Callable[[Applied, Mapping[str, Raw]], Fields]] = {
    ThinkingField.REASONING_EFFORT: lambda at, _: {"reasoning_effort": at.effort} if at.effort else {},
    ThinkingField.ENABLE_THINKING: _enable_thinking,
    ThinkingField.THINKING_TYPE: _thinking_type,
    ThinkingField.REASONING: _reasoning,
    ThinkingField.THINKING_CONFIG: _thinking_config,
    ThinkingField.NONE: lambda *_: {},
}


# Tools for engines that bind a call's arguments to their schema only where the tool is `strict` (vLLM 0.32).
#
# A call that the client forces is otherwise bound to be a call, with anything for arguments.

_BEYOND = (b"(?=", b"(?!", b"(?<")
"""Patterns that look around: no grammar can say them, and the engine would refuse the request."""
_NOTHING = (b"{}", b"null")
_TOOLS = msgspec.json.Decoder(list[dict[str, Raw]])
_TRUE = Raw(b"true")


def with_strict(body: dict[str, Raw]) -> dict[str, Raw]:
    """Forced calls have their tools `strict`, unless the client said whether they are; what can't be read passes."""
    choice = bytes(body.get("tool_choice", b""))
    if "tools" not in body or not (choice == b'"required"' or choice.startswith(b"{")):
        return body
    try:
        tools = _TOOLS.decode(body["tools"])
    except UNREADABLE:
        return body
    return body | {"tools": Raw(msgspec.json.encode([_strict(tool) for tool in tools]))}


def _strict(tool: dict[str, Raw]) -> dict[str, Raw]:
    function = members(tool.get("function"))
    schema = bytes(function.get("parameters", b"null"))
    if "strict" in function or schema in _NOTHING or any(part in schema for part in _BEYOND):
        return tool
    return {**tool, "function": Raw(msgspec.json.encode({**function, "strict": _TRUE}))}


# OpenAI's wire and its many relatives: what must change in a request or an answer changes, all other bytes pass.
#
# Where a provider departs from OpenAI is data (`Quirks`), never code.

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
_FALSE = Raw(b"false")


class OpenAICompatible:
    """The adapter for chat, completions, embeddings and, where `quirks.responses`, responses."""

    def encode(self, call: Call) -> UpstreamRequest:
        """Raises `ClientError` 400 for tools that can't be put into a grammar (`quirks.grammar_tools`)."""
        if call.target.prompt is not None:
            call = completion(call)
        quirks = call.target.provider.quirks
        body, dropped = dict(call.body), tuple(call.body.keys() & quirks.refuses)
        for name in dropped:
            del body[name]
        if quirks.refuses:
            body = without_members(body, quirks.refuses)
        body["model"] = to_raw(call.target.model.name)
        if quirks.grammar_tools and call.endpoint is Endpoint.CHAT:
            body = with_grammar(body)
        if quirks.strict_tools:
            body = with_strict(body)
        if call.private:
            _keep_private(call, body)
        if call.endpoint is Endpoint.EMBEDDINGS:
            return _request(call, body, "none", dropped)
        _stream(call, body)
        _cap(call, body)
        thinking = _think(call, body)
        if call.endpoint is Endpoint.RESPONSES:
            body["store"] = _FALSE
        return _request(call, body, thinking, dropped)

    def decode(self, call: Call, body: bytes) -> Reply:
        if call.endpoint is Endpoint.RESPONSES:
            return respond(call, body)
        if completes(call):
            return answered(self.decode(as_completion(call), body))
        fields, answer = parse(body)
        without_usage(fields, answer)
        plain(fields, answer)
        _identify(call, fields)
        if call.endpoint is Endpoint.EMBEDDINGS:
            return _embeddings(call, fields, answer)
        if not answer.choices:
            raise UpstreamFailure(malformed(NO_CHOICES))
        has_answer = False
        for choice in answer.choices:
            if (choice.message if call.endpoint is Endpoint.CHAT else choice.text) is None:
                raise UpstreamFailure(malformed(NO_CHOICES))
            has_answer = has_answer or choice.answers
        reply = Reply(
            body=fields,
            usage=counted(call, _usage(call, answer.report), answer.choices),
            finish_reason=answer.choices[0].finish_reason or "",
            has_answer=has_answer,
            model_served=answer.model or "",
        )
        return called(reply) if applies(call) else reply

    def stream(self, call: Call) -> StreamDecoder:
        if call.endpoint is Endpoint.RESPONSES:
            return ResponsesStream(call)
        if completes(call):
            return CompletingStream(call)
        return GrammarStream(call) if applies(call) else ChatStream(call)

    failure = staticmethod(failure)


def _request(call: Call, body: dict[str, Raw], thinking: str, dropped: tuple[str, ...]) -> UpstreamRequest:
    headers = {"content-type": "application/json"}
    if call.target.api_key is not None:
        headers["authorization"] = f"Bearer {call.target.api_key.reveal()}"
    for name, value in call.target.headers.items():
        headers[name.lower()] = value
    path, sent = PATHS[call.endpoint], msgspec.json.encode(body)
    return UpstreamRequest("POST", path, tuple(headers.items()), sent, thinking, call.request_id, dropped)


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
    fields = write(call, control, body)
    for name, value in fields.items():
        body[name] = to_raw(value)
    return control.text if fields or control is ALWAYS_ON else "none"


def _identify(call: Call, fields: dict[str, Raw]) -> None:
    """The client's name for the model, and what a client expects but the provider left out."""
    fields["model"] = to_raw(call.model)
    if bytes(fields.get("object", NULL)) in BLANK:
        fields["object"] = to_raw(_OBJECTS[call.endpoint])
    if call.endpoint is not Endpoint.EMBEDDINGS:
        if bytes(fields.get("id", NULL)) in BLANK:
            fields["id"] = to_raw(ID_PREFIXES[call.endpoint] + new_id())
        if bytes(fields.get("created", NULL)) in BLANK:
            fields["created"] = to_raw(int(time.time()))


_LIST = msgspec.json.Decoder(list[Raw])


def _embeddings(call: Call, fields: dict[str, Raw], answer: Answer) -> Reply:
    """As many vectors as texts: a list of numbers is one text, as tokens."""
    try:
        vectors = CHOICES.decode(fields.get("data", NULL))
    except UNREADABLE:
        vectors = []
    texts = _LIST.decode(call.body["input"]) if bytes(call.body.get("input", NULL))[:1] == b"[" else []
    several = bool(texts) and bytes(texts[0])[:1] in (b'"', b"[")
    sound = all(bytes(vector.get("embedding", NULL))[:1] in (b'"', b"[") for vector in vectors)
    if not sound or len(vectors) != (len(texts) if several else 1):
        raise UpstreamFailure(malformed("The provider's answer holds no embedding for each text."))
    return Reply(body=fields, usage=_usage(call, answer.report), model_served=answer.model or "")


def _usage(call: Call, report: Report | None) -> Usage | None:
    if report is None:
        return None
    usage = canonical(report)
    return every_choice(usage, call.n) if call.target.provider.quirks.usage_counts_one_choice else usage
