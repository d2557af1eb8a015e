"""Chats with models that only complete texts: a template makes one text of a chat, and the completion is the answer.

The text goes out as `prompt`; of the request's other fields only those of sampling go along, as the rest means nothing
there, or would answer with the template (`echo`).
"""

from functools import lru_cache
from typing import Any

import msgspec
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec import Raw, Struct, structs

from adapters.failure import UNREADABLE, malformed, streamed
from adapters.openai_stream import NO_CHOICES, parse, to_raw
from adapters.sse import Chunks, EventStream
from adapters.usage import Report, canonical, merge
from router.errors import UpstreamFailure
from router.types.attempt import Call, ErrorKind, Failure, Reply
from router.types.request import Endpoint
from router.types.target import Prompt

SAMPLING = frozenset(
    [
        *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty"),
        *("repetition_penalty", "repeat_penalty", "logit_bias", "max_tokens", "max_completion_tokens", "user"),
    ]
)
"""Fields that completions have as chats do; OpenAI's, vLLM's and llama.cpp's."""
MOST_TEMPLATES = 64


class _Message(Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part["text"] for part in self.content if isinstance(part.get("text"), str))
        return self.content or ""


class _Choice(Struct):
    index: int = 0
    text: str = ""
    finish_reason: str | None = None


_MESSAGES = msgspec.json.Decoder(list[_Message])
_CHOICES = msgspec.json.Decoder(list[_Choice])
_STOPS = msgspec.json.Decoder(str | list[str] | None)
_NULL = Raw(b"null")
_JINJA = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
_template = lru_cache(MOST_TEMPLATES)(_JINJA.from_string)


def completes(call: Call) -> bool:
    """It is a chat, and its target knows texts only."""
    return call.target.prompt is not None and call.endpoint is Endpoint.CHAT


def as_completion(call: Call) -> Call:
    """The same, for what it is upstream."""
    return structs.replace(call, endpoint=Endpoint.COMPLETIONS)


def completion(call: Call) -> Call:
    """Such a chat as a completion; any other call as it is.

    Raises `UpstreamFailure` where the template can't take it: another target may.
    """
    prompt = call.target.prompt
    if prompt is None or not completes(call):
        return call
    fields = {
        "prompt": to_raw(_rendered(call, prompt)),
        "max_tokens": to_raw(call.target.model.max_output),  # engines stop after 16 where nobody says so
        **{name: raw for name, raw in call.body.items() if name in SAMPLING},
    }
    if "max_completion_tokens" in fields and fields["max_completion_tokens"] != _NULL:
        fields["max_tokens"] = fields["max_completion_tokens"]
    if stops := list(dict.fromkeys([*_stops(fields.get("stop", _NULL)), *prompt.stop])):
        fields["stop"] = to_raw(stops)
    return structs.replace(as_completion(call), body=fields)


def answered(reply: Reply) -> Reply:
    """A whole completion as a chat's answer."""
    choices = [
        {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text.lstrip(), "refusal": None},
            "logprobs": None,
            "finish_reason": choice.finish_reason,
        }
        for choice in _CHOICES.decode(reply.body["choices"])
    ]
    body = {**reply.body, "object": to_raw("chat.completion"), "choices": to_raw(choices)}
    return structs.replace(reply, body=body)


class CompletingStream(EventStream):
    """Chunks of a completion as chunks of a chat; blanks before the first word are left out."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._chunks = Chunks(call)
        self._report: Report | None = None
        self._begun = False

    def final(self, usage: bytes) -> bytes:
        return self._chunks.closing(usage)

    def _event(self, name: bytes, payload: bytes) -> bytes:
        if payload.strip() == b"[DONE]":
            if not (self.output_chars or self.finished):
                raise UpstreamFailure(malformed(NO_CHOICES))
            self.complete = True
            return b""
        if name == b"error":
            raise UpstreamFailure(streamed(payload))
        _, answer = parse(payload)
        self.model_served = self.model_served or answer.model or ""
        if answer.report is not None:
            self._report = merge(self._report, answer.report)
            self.usage = canonical(self._report or answer.report)
        return b"".join([self._said(choice.text or "", choice.finish_reason) for choice in answer.choices or ()])

    def _said(self, text: str, finish_reason: str | None) -> bytes:
        self.output_chars += len(text)
        if not self.has_answer:
            text = text.lstrip()
            self.has_answer = bool(text)
        events = self._chunks.delta({"content": text}) if text else b""
        if finish_reason:
            self.finished, self.finish_reason = True, finish_reason
            events += self._chunks.delta({}, finish_reason=finish_reason)
        if events and not self._begun:
            self._begun = True
            events = self._chunks.delta({"role": "assistant", "content": ""}) + events
        return events


def _rendered(call: Call, prompt: Prompt) -> str:
    try:
        messages = _MESSAGES.decode(call.body.get("messages", _NULL))
        return _template(prompt.template).render(_variables(call, messages))
    except Exception as error:
        # Whatever a template may raise; its words may quote the request.
        raise UpstreamFailure(
            Failure(ErrorKind.BAD_RESPONSE, f"The target's template can't take this chat ({type(error).__name__}).")
        ) from None


def _variables(call: Call, messages: list[_Message]) -> dict[str, Any]:
    """As `PROMPT_VARIABLES` says."""
    known = call.languages
    said = next((message.text for message in reversed(messages) if message.role == "user"), "")
    return {
        "messages": [{"role": message.role, "content": message.text} for message in messages],
        "system": "\n".join(message.text for message in messages if message.role in ("system", "developer")),
        "input": said,
        "text": known.text or said,
        "source": known.source_name,
        "target": known.target_name,
        "source_code": known.source,
        "target_code": known.target,
    }


def _stops(raw: Raw) -> list[str]:
    try:
        stop = _STOPS.decode(raw)
    except UNREADABLE:
        return []
    return [stop] if isinstance(stop, str) else stop or []
