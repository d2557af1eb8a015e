"""Google's Gemini API, `generateContent`. Field names as in google-genai 3.4.0."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from adapters.chat import (
    WIRES,
    ChatMessage,
    ChatRequest,
    Json,
    TranslatingAdapter,
    arguments,
    as_object,
    compact,
    data_url,
    filled,
    native,
    schemas_of,
    tool_call,
    without,
)
from adapters.failure import UNREADABLE, malformed, streamed
from adapters.stream import Delta, TranslatedStream, answer_id, chat_reply
from adapters.thinking import ThinkingControl, applied
from adapters.usage import Count, counters, later, tier
from router.errors import UpstreamFailure
from router.types import attempt
from router.types.attempt import Call, CountSource, ErrorKind, Failure, StreamDecoder, TargetReply, Usage
from router.types.target import Contract

_WIRE: Json = WIRES["gemini"]
_SCHEMA: dict[str, list[str]] = _WIRE["schema"]
_NULL = Raw(b"null")
_UNSIGNED = "skip_thought_signature_validator"
"""Google's placeholder signature for calls by other models: Gemini 3 refuses a tool turn without a signature."""


class GeminiAdapter(TranslatingAdapter):
    """Adapter for `generateContent`. The base URL ends before `/v1beta`."""

    unsupported = frozenset(_WIRE["unsaid"])
    key_header = "x-goog-api-key"

    def _translate(self, call: Call, chat: ChatRequest, own: Json) -> tuple[str, Json, str]:
        model, control = call.target.model, applied(call)
        if control.on is False and model.thinking.levels and "none" not in model.thinking.levels:
            # A model that can't stop thinking (2.5 Pro) gets its minimum budget, and the answer states it.
            least = model.thinking.minimum
            control = ThinkingControl(f"budget={least}", budget=least, on=True)
        config = _generation(call, chat, control, own)
        system = [part for message in chat.messages if message.is_rule for part in _parts(message)]
        fields = {
            "systemInstruction": {"parts": system} if system else None,
            "tools": _tools(chat),
            "toolConfig": _tool_config(chat, own),
            "generationConfig": config or None,
            "serviceTier": _WIRE["tiers"].get(chat.service_tier, chat.service_tier),
        }
        contents = _contents(chat.messages, sign=model.thinking.contract is Contract.LEVEL)
        verb = "streamGenerateContent?alt=sse" if call.stream else "generateContent"
        path = f"/v1beta/models/{quote(model.name)}:{verb}"
        body = {**own, "contents": contents, **filled(fields)}
        return path, body, _stated(control, config.get("thinkingConfig"))

    def decode(self, call: Call, body: bytes) -> TargetReply:
        """Raises `UpstreamFailure`: bad response for no candidates, content filter for a blocked prompt."""
        answer = _response(body)
        candidates = answer.candidates or ()
        if not any(candidate.finish_reason or candidate.parts for candidate in candidates):
            raise UpstreamFailure(malformed("The provider's answer has no candidates."))
        identifier = answer.response_id or answer_id(call)
        choices = [
            Delta(candidate.index, fields, _finish(candidate.finish_reason, "tool_calls" in fields), candidate.logprobs)
            for candidate in candidates
            for fields in [_message_fields(candidate, identifier)]
        ]
        counts = counters(TOKENS, answer.usage_metadata)
        return chat_reply(call, identifier, choices, usage(counts) if counts else None, answer.model_version)

    def stream(self, call: Call) -> StreamDecoder:
        return _GeminiStream(call)


# Conversion of a chat request to a `generateContent` request.


def _cleaned(schema: Any) -> Any:
    """Reduces a JSON schema to Gemini's keywords; others are left out, such as `pattern`, `not` and longer `allOf`s."""
    if not isinstance(schema, dict):
        return schema
    plain = _plain(schema)
    known = {key: schemas_of(_SCHEMA, key, plain[key], _cleaned) for key in plain if key in _SCHEMA["supported"]}
    return {key: value for key, value in known.items() if key.startswith("$")} if "$ref" in known else known


def _plain(schema: Json) -> Json:
    """Expresses rules in supported keywords: `const` as an `enum`, an `allOf` with one part as that part, an integer's
    exclusive bounds as inclusive ones, and `definitions` as `$defs`."""
    plain = dict(schema)
    match plain.get("allOf"):
        case [dict(only)]:
            plain = {**only, **plain}
    if "const" in plain:
        plain["enum"] = [plain["const"]]
    if "definitions" in plain:
        plain["$defs"] = plain["definitions"]
    if isinstance(reference := plain.get("$ref"), str):
        plain["$ref"] = reference.replace("#/definitions/", "#/$defs/")
    steps = (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1))
    bounds = {to: plain[key] + step for key, to, step in steps if type(plain.get(key)) is int}
    return {**bounds, **plain} if plain.get("type") == "integer" else plain


def _contents(messages: list[ChatMessage], *, sign: bool) -> list[Json]:
    """Merges turns of one role; the results of one round of tool calls form a user turn of their own, because Gemini
    compares their number with that of the calls. `sign`: whether the model requires thought signatures."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls or ()}
    merged: list[Json] = []
    previous = ""
    for message in messages:
        if message.is_rule:
            continue
        parts = [_result(message, names)] if message.role == "tool" else _parts(message)
        for number, call in enumerate(message.tool_calls or ()):
            # Only the first of several parallel calls has a signature.
            signature = call.signature or (_UNSIGNED if sign and number == 0 else None)
            function = {"id": call.id, "name": call.function.name, "args": arguments(call.function.arguments)}
            parts.append({"functionCall": function, **filled({"thoughtSignature": signature})})
        if parts and message.role == previous:
            merged[-1]["parts"] += parts
        elif parts:
            merged.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
            previous = message.role
    return merged


def _result(message: ChatMessage, names: Mapping[str, str]) -> Json:
    """Converts a tool result: a JSON object is sent unchanged, other text under Google's key `output`."""
    text = "".join(part["text"] for part in message.parts if isinstance(part.get("text"), str))
    media = [part for part in _parts(message) if "inlineData" in part or "fileData" in part]
    name = names.get(message.tool_call_id, message.tool_call_id)
    response = {"id": message.tool_call_id, "name": name, "response": as_object(text, "output")}
    return {"functionResponse": {**response, "parts": media} if media else response}


def _parts(message: ChatMessage) -> list[Json]:
    return [converted for part in message.parts if (converted := _part(part))]


def _part(part: Json) -> Json | None:
    """Converts a part of a message; parts of an unknown type are kept, since they may be Gemini's own."""
    match part:
        case {"type": "text", "text": str(text)}:
            return {"text": text, **without(part, "type", "text", "cache_control")} if text else None
        case {"type": "refusal", "refusal": str(text)}:
            return {"text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {**_media(url), **without(part, "type", "image_url", "cache_control")}
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            return {"inlineData": {"mimeType": f"audio/{kind}", "data": data}}
        case {"type": "file", "file": {"file_data": str(url)} | {"file_id": str(url)}}:
            return _media(url)
    return part


def _media(url: str) -> Json:
    if inline := data_url(url):
        return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
    kind = _WIRE["types"].get(url.partition("?")[0].rpartition(".")[2].lower())
    return {"fileData": {"fileUri": url, **({"mimeType": kind} if kind else {})}}


def _generation(call: Call, chat: ChatRequest, control: ThinkingControl, own: Json) -> Json:
    """Returns the generation config: OpenAI's fields over the client's own `generationConfig`."""
    given = native(own, "generationConfig") or {}
    wanted = {
        **{name: getattr(chat, field) for name, field in _WIRE["generation"].items()},
        "maxOutputTokens": call.max_output or chat.max_output,
        "candidateCount": call.n if call.n > 1 else None,
        "logprobs": chat.top_logprobs if chat.logprobs else None,
        "thinkingConfig": _thinking(control),
        "responseMimeType": "application/json" if chat.schema is not None or chat.wants_object else None,
        "responseJsonSchema": None if chat.schema is None else _cleaned(chat.schema),
    }
    return {**given, **filled(wanted)}


def _thinking(control: ThinkingControl) -> Json | None:
    """Returns the thinking config with a level or a budget; Gemini refuses both together."""
    if control.on is False:
        return {"thinkingBudget": 0}
    if control.budget is not None:
        return {"thinkingBudget": control.budget, "includeThoughts": True}
    if control.effort is not None:
        return {"thinkingLevel": control.effort.upper(), "includeThoughts": True}
    return {"includeThoughts": True} if control.on else None


def _stated(control: ThinkingControl, config: Json | None) -> str:
    """Returns the control that the body states, which may be the client's own `thinkingConfig`."""
    match config if control.on is None else None:
        case {"thinkingBudget": budget}:
            return f"budget={budget}"
        case {"thinkingLevel": str(level)}:
            return f"effort={level.lower()}"
    return control.text


def _tools(chat: ChatRequest) -> list[Json] | None:
    """Puts all functions in one tool; tools of other types are kept, since they may be Gemini's own."""
    functions: list[Json] = []
    others: list[Json] = []
    for tool in chat.tools or ():
        match tool:
            case {"type": "function", "function": dict(function)}:
                schema = function.get("parameters")
                fields = {"name": function.get("name"), "description": function.get("description")}
                functions.append(filled({**fields, "parametersJsonSchema": _cleaned(schema) if schema else None}))
            case _:
                others.append(tool)
    return [*([{"functionDeclarations": functions}] if functions else []), *others] or None


def _tool_config(chat: ChatRequest, own: Json) -> Json | None:
    if not chat.tools or (choice := chat.choice) is None:
        return None
    calling: Json = {"mode": _WIRE["modes"].get(choice.mode, "AUTO")}
    if choice.names:
        # VALIDATED is "auto" restricted to some functions; AUTO accepts no names.
        mode = "ANY" if choice.mode == "required" else "VALIDATED"
        calling = {"mode": mode, "allowedFunctionNames": list(choice.names)}
    return {**(native(own, "toolConfig") or {}), "functionCallingConfig": calling}


# Types of the API's answers, as far as they are read; whole answers and stream chunks have the same form.


class _Wire(Struct, frozen=True, rename="camel"):
    pass


class _GeminiFunctionCall(_Wire, frozen=True):
    name: str = ""
    args: Raw = Raw(b"{}")
    id: str = ""


class _GeminiPart(_Wire, frozen=True):
    text: str = ""
    thought: bool = False
    thought_signature: str = ""
    function_call: _GeminiFunctionCall | None = None


class _GeminiContent(_Wire, frozen=True):
    parts: list[_GeminiPart] | None = None


class _GeminiToken(_Wire, frozen=True):
    token: str = ""
    log_probability: float = 0.0

    @property
    def logprob(self) -> Json:
        return {"token": self.token, "logprob": self.log_probability, "bytes": list(self.token.encode())}


class _TopTokens(_Wire, frozen=True):
    candidates: list[_GeminiToken] = []


class _GeminiLogprobs(_Wire, frozen=True):
    chosen_candidates: list[_GeminiToken] = []
    top_candidates: list[_TopTokens] = []


class _Candidate(_Wire, frozen=True):
    content: _GeminiContent | None = None
    finish_reason: str = ""
    finish_message: str | None = None
    index: int = 0
    logprobs_result: _GeminiLogprobs | None = None

    @property
    def parts(self) -> list[_GeminiPart]:
        return (self.content.parts if self.content else None) or []

    @property
    def logprobs(self) -> Json | None:
        """Log probabilities as in OpenAI's `logprobs` of a choice."""
        result = self.logprobs_result
        if result is None:
            return None
        tops = [top.candidates for top in result.top_candidates]
        tops += [[]] * (len(result.chosen_candidates) - len(tops))
        pairs = zip(result.chosen_candidates, tops, strict=False)
        content = [{**chosen.logprob, "top_logprobs": [token.logprob for token in top]} for chosen, top in pairs]
        return {"content": content, "refusal": None}


class _PromptFeedback(_Wire, frozen=True):
    block_reason: str = ""
    block_reason_message: str | None = None


class _GeminiResponse(_Wire, frozen=True):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _PromptFeedback | None = None
    usage_metadata: Raw = _NULL
    model_version: str = ""
    response_id: str = ""
    error: Raw = _NULL


_RESPONSE = msgspec.json.Decoder(_GeminiResponse)


def _response(payload: bytes) -> _GeminiResponse:
    """Decodes an answer. Raises `UpstreamFailure`: bad response if malformed, content filter for a blocked prompt."""
    try:
        answer = _RESPONSE.decode(payload)
    except UNREADABLE:
        raise UpstreamFailure(malformed("The provider's answer is not a GenerateContentResponse.")) from None
    if answer.error != _NULL:
        raise UpstreamFailure(streamed(payload))
    feedback = answer.prompt_feedback
    if feedback and feedback.block_reason and not answer.candidates:
        message = feedback.block_reason_message or f"The provider blocked the prompt: {feedback.block_reason}."
        raise UpstreamFailure(Failure(ErrorKind.CONTENT_FILTER, message))
    return answer


def _finish(reason: str, calls: bool) -> str:
    """Returns OpenAI's finish reason; `calls` says whether the candidate has a function call."""
    known: str = _WIRE["finish"].get(reason, "stop")
    return "tool_calls" if calls and known == "stop" else known


def _message_fields(candidate: _Candidate, name: str, earlier_calls: int = 0) -> Json:
    """Returns a candidate's parts as members of a message or delta; missing call ids are derived from `name`.

    `earlier_calls` is the number of function calls that the candidate had in earlier chunks.
    """
    parts, calls = candidate.parts, list[Json]()
    for part in parts:
        if (call := part.function_call) is not None:
            identifier = call.id or f"call_{name}_{candidate.index}_{earlier_calls + len(calls)}"
            signed = {"google": {"thought_signature": part.thought_signature}} if part.thought_signature else None
            calls.append(tool_call(identifier, call.name, compact(call.args)) | filled({"extra_content": signed}))
    fields = {
        "content": "".join(part.text for part in parts if not part.thought),
        "reasoning_content": "".join(part.text for part in parts if part.thought),
        "refusal": candidate.finish_message if candidate.finish_reason not in ("", "STOP", "MAX_TOKENS") else None,
        "tool_calls": calls,
    }
    return {name: value for name, value in fields.items() if value}


class _GeminiStream(TranslatedStream):
    """Decodes a stream. Finish reasons are held back for `final`, because Gemini may repeat them on every chunk."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._tokens = GeminiTokens()
        self._calls: dict[int, int] = {}
        self._reasons: dict[int, str] = {}

    def final(self, usage: bytes) -> bytes:
        ends = (Delta(index, {}, _finish(reason, self._calls[index] > 0)) for index, reason in self._reasons.items())
        return b"".join(map(self._write, sorted(ends, key=lambda end: end.choice))) + super().final(usage)

    def _deltas(self, name: bytes, payload: bytes) -> Iterator[Delta]:
        if payload == b"[DONE]" and self.finished:
            self.complete = True
            return
        answer = _response(payload)
        if counts := counters(TOKENS, answer.usage_metadata):
            self._tokens = later(self._tokens, counts)
            self.usage = usage(self._tokens)
        self.model_served = answer.model_version or self.model_served
        if answer.response_id and not self._calls:
            self._name(answer.response_id)
        for candidate in answer.candidates or ():
            index, before = candidate.index, self._calls.setdefault(candidate.index, 0)
            fields = _message_fields(candidate, self._id, before)
            for number, call in enumerate(fields.get("tool_calls", ()), before):
                call["index"] = number
                self._calls[index] += 1
            if candidate.finish_reason:
                self._reasons[index] = candidate.finish_reason
                first = min(self._reasons)
                self.finish_reason = _finish(self._reasons[first], self._calls[first] > 0)
            self.finished = self._reasons.keys() == self._calls.keys()
            yield Delta(index, fields, logprobs=candidate.logprobs)


# Conversion of Gemini's counts: cached input is part of the prompt, and thoughts are not part of the candidates.
#
# The total is prompt + toolUsePrompt + candidates + thoughts, and is used to check them.


class ModalityCount(_Wire, frozen=True):
    modality: str = ""
    token_count: Count = 0


class GeminiTokens(_Wire, frozen=True):
    """`usageMetadata`; cumulative in a stream. Gemini leaves out counters that are zero."""

    prompt_token_count: Count | None = None
    cached_content_token_count: Count | None = None
    tool_use_prompt_token_count: Count | None = None
    candidates_token_count: Count | None = None
    thoughts_token_count: Count | None = None
    total_token_count: Count | None = None
    prompt_tokens_details: list[ModalityCount] | None = None
    cache_tokens_details: list[ModalityCount] | None = None
    tool_use_prompt_tokens_details: list[ModalityCount] | None = None
    candidates_tokens_details: list[ModalityCount] | None = None
    traffic_type: str = ""
    unreadable: bool = False


TOKENS = msgspec.json.Decoder(GeminiTokens)


def usage(tokens: GeminiTokens) -> Usage:
    violations = [attempt.UNREADABLE_USAGE] if tokens.unreadable else []
    prompt = tokens.prompt_token_count or 0
    cached = tokens.cached_content_token_count or 0
    tool_use = tokens.tool_use_prompt_token_count or 0
    candidates = tokens.candidates_token_count or 0
    thoughts, source = tokens.thoughts_token_count, CountSource.REPORTED
    if thoughts is None and tokens.total_token_count is None:
        source = CountSource.UNKNOWN
    elif thoughts is None:
        # Gemini omits a count of zero, so the number of thoughts follows from the total.
        thoughts = max((tokens.total_token_count or 0) - prompt - tool_use - candidates, 0)
        source = CountSource.DERIVED
    if cached > prompt:
        violations.append(attempt.CACHED_BESIDE)
    output = candidates + (thoughts or 0)
    stated = output if tokens.total_token_count is None else tokens.total_token_count - prompt - tool_use
    if stated != output:
        violations.append("totalTokenCount is not the sum of its parts")
    cached_audio = min(_of(tokens.cache_tokens_details, "AUDIO"), cached)
    uncached = max(prompt - cached, 0) + tool_use
    media: list[int] = []
    for modality in ("AUDIO", "IMAGE", "VIDEO"):
        sent = _of(tokens.prompt_tokens_details, modality) - _of(tokens.cache_tokens_details, modality)
        sent = max(sent, 0) + _of(tokens.tool_use_prompt_tokens_details, modality)
        media.append(min(sent, uncached - sum(media)))
    audio_out = min(_of(tokens.candidates_tokens_details, "AUDIO"), candidates)
    image_out = min(_of(tokens.candidates_tokens_details, "IMAGE"), candidates - audio_out)
    return Usage(
        input_uncached=uncached - sum(media),
        cache_read=cached - cached_audio,
        cache_read_audio=cached_audio,
        input_audio=media[0],
        input_image=media[1],
        input_video=media[2],
        output_visible=max(stated, output) - (thoughts or 0) - audio_out - image_out,
        output_reasoning=thoughts,
        output_audio=audio_out,
        output_image=image_out,
        reasoning_source=source,
        service_tier=tier(tokens.traffic_type.removeprefix("ON_DEMAND").lstrip("_")),
        violations=tuple(violations),
    )


def _of(details: list[ModalityCount] | None, modality: str) -> int:
    """Returns the tokens of one modality."""
    return sum(detail.token_count for detail in details or () if detail.modality == modality)
