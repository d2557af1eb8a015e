"""OpenAI's wire and its many relatives: what must change in a request or an answer changes, all other bytes pass.

Where a provider departs from OpenAI is data (`Quirks`), never code.
"""

import time
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from adapters.completing import CompletingStream, answered, as_completion, completes, completion
from adapters.failure import failure, malformed
from adapters.grammar_tools import applies, with_grammar
from adapters.grammar_turns import GrammarStream, called
from adapters.openai_parts import THOUGHTS, plain, without_thoughts
from adapters.openai_responses import ResponsesStream, respond
from adapters.openai_stream import ChatStream
from adapters.openai_thinking import members, write
from adapters.openai_thoughts import counted
from adapters.openai_wire import ID_PREFIXES, NO_CHOICES, Answer, absent, parse, without_usage
from adapters.strict_tools import with_strict
from adapters.thinking import ALWAYS_ON, applied
from adapters.usage import Report, canonical, every_choice
from router.errors import UpstreamFailure
from router.types.call import Call, Reply, StreamDecoder, UpstreamRequest
from router.types.failure import Failure
from router.types.ids import new_id
from router.types.request import Endpoint
from router.types.target import Contract
from router.types.usage import Usage

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
_TRUE, _FALSE = Raw(b"true"), Raw(b"false")


class OpenAICompatible:
    """The adapter for chat, completions, embeddings and, where `quirks.responses`, responses."""

    def encode(self, call: Call) -> UpstreamRequest:
        """Raises `ClientError` 400 for tools that can't be put into a grammar (`quirks.grammar_tools`)."""
        call = completion(call)
        quirks = call.target.provider.quirks
        body = {name: raw for name, raw in call.body.items() if name not in quirks.refuses}
        if THOUGHTS in quirks.refuses:
            body = without_thoughts(body)
        body["model"] = _raw(call.target.model.name)
        if quirks.grammar_tools and call.endpoint is Endpoint.CHAT:
            body = with_grammar(body)
        if quirks.strict_tools:
            body = with_strict(body)
        _keep_private(call, body)
        if call.endpoint is Endpoint.EMBEDDINGS:
            return _request(call, body, "none")
        _stream(call, body)
        _cap(call, body)
        thinking = _think(call, body)
        if call.endpoint is Endpoint.RESPONSES:
            body["store"] = _FALSE
        return _request(call, body, thinking)

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
        wordless = call.endpoint is Endpoint.CHAT and any(choice.message is None for choice in answer.choices or ())
        if not answer.choices or wordless:
            raise UpstreamFailure(malformed(NO_CHOICES))
        reply = Reply(
            body=fields,
            usage=counted(call, _usage(call, answer.report), answer.choices),
            finish_reason=answer.choices[0].finish_reason or "",
            has_answer=any(choice.answers for choice in answer.choices),
            model_served=answer.model or "",
        )
        return called(reply) if applies(call) else reply

    def stream(self, call: Call) -> StreamDecoder:
        if call.endpoint is Endpoint.RESPONSES:
            return ResponsesStream(call)
        if completes(call):
            return CompletingStream(call)
        return GrammarStream(call) if applies(call) else ChatStream(call)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        return failure(status, headers, body)


def _request(call: Call, body: dict[str, Raw], thinking: str) -> UpstreamRequest:
    headers = {"content-type": "application/json"}
    if call.target.api_key is not None:
        headers["authorization"] = f"Bearer {call.target.api_key.reveal()}"
    headers |= {name.lower(): value for name, value in call.target.headers.items()}
    path, sent = PATHS[call.endpoint], msgspec.json.encode(body)
    return UpstreamRequest("POST", path, tuple(headers.items()), sent, thinking, call.request_id)


def _keep_private(call: Call, body: dict[str, Raw]) -> None:
    """Says that nothing may be kept or trained on, in the provider's own words, whatever the client says of it."""
    if not call.private:
        return
    body.pop("prompt_cache_retention", None)  # the long one is kept in storage for a day
    for name, value in call.target.provider.quirks.private.items():
        if name != "store" or call.endpoint in _STORING:
            body[name] = _raw({**members(body.get(name)), **value} if isinstance(value, dict) else value)


def _stream(call: Call, body: dict[str, Raw]) -> None:
    """`stream` as this call has it, and a request for usage, without which the answer can't be charged."""
    body.pop("stream", None)
    options = body.pop("stream_options", None)
    if not call.stream:
        return
    body["stream"] = _TRUE
    asks = call.target.provider.quirks.stream_usage and call.endpoint is not Endpoint.RESPONSES
    if asks:
        body["stream_options"] = _raw({**members(options), "include_usage": True})
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
    cap = stated if call.max_output is None else _raw(call.max_output)
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
        body[name] = _raw(value)
    return control.text if fields or control is ALWAYS_ON else "none"


def _identify(call: Call, fields: dict[str, Raw]) -> None:
    """The client's name for the model, and what a client expects but the provider left out."""
    fields["model"] = _raw(call.model)
    if absent(fields, "object"):
        fields["object"] = _raw(_OBJECTS[call.endpoint])
    if call.endpoint is not Endpoint.EMBEDDINGS:
        if absent(fields, "id"):
            fields["id"] = _raw(ID_PREFIXES[call.endpoint] + new_id())
        if absent(fields, "created"):
            fields["created"] = _raw(int(time.time()))


def _embeddings(call: Call, fields: dict[str, Raw], answer: Answer) -> Reply:
    if absent(fields, "data"):
        raise UpstreamFailure(malformed("The provider's answer holds no embeddings."))
    return Reply(body=fields, usage=_usage(call, answer.report), model_served=answer.model or "")


def _usage(call: Call, report: Report | None) -> Usage | None:
    if report is None:
        return None
    usage = canonical(report)
    return every_choice(usage, call.n) if call.target.provider.quirks.usage_counts_one_choice else usage


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
