"""A Responses request → a Chat Completions request."""

from msgspec import Raw, Struct
from msgspec.json import Decoder, Encoder

from router.api.responses.body import given, read, refused
from router.api.responses.items import to_messages
from router.api.responses.tools import to_tools

_encode = Encoder().encode
_TEXT, _BOOL, _NAMES = Decoder(str), Decoder(bool), Decoder(list[str])
_FIELDS = Decoder(dict[str, Raw])

_WHOLE_INPUT = "no responses are stored here: send the whole conversation in input."
_REFUSED = {
    "previous_response_id": _WHOLE_INPUT,
    "conversation": _WHOLE_INPUT,
    "prompt": "no prompt templates are stored here: send the text in instructions and input.",
    "context_management": "the context is never compacted here: leave it out, and shorten input yourself.",
    "messages": "in the Responses API this is input.",
    "response_format": "in the Responses API this is text.format.",
    "verbosity": "in the Responses API this is text.verbosity.",
    "reasoning_effort": "in the Responses API this is reasoning.effort.",
    "max_tokens": "in the Responses API this is max_output_tokens.",
    "max_completion_tokens": "in the Responses API this is max_output_tokens.",
    "logprobs": 'in the Responses API this is include: ["message.output_text.logprobs"].',
    "functions": "in the Responses API this is tools.",
    "function_call": "in the Responses API this is tool_choice.",
    "n": "the Responses API gives one answer: send the request several times.",
}
_TRANSLATED = {
    *("input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
    *("max_output_tokens", "include", "top_logprobs", "background"),
}
_WITHOUT_MEANING = {"store", "truncation", "max_tool_calls", "stream_options"}
"""Storing, trimming, running tools and padding the stream are never done here, and the response says so."""
SUMMARY = ("summary", "generate_summary")
LOGPROBS = "message.output_text.logprobs"


class _Schema(Struct, omit_defaults=True):
    name: str
    schema: dict[str, Raw]
    strict: bool | None = None
    description: str | None = None


class _Kind(Struct):
    type: str


_SCHEMA, _KIND, _COUNT = Decoder(_Schema), Decoder(_Kind), Decoder(int)


def to_chat(body: dict[str, Raw]) -> dict[str, Raw]:
    """The same request for `/v1/chat/completions`; a field that neither API knows passes untouched.

    Raises `ClientError` 400 for what is wrong, and for what needs a store or a tool that the provider runs.
    """
    _refuse(body)
    passed = {name: raw for name, raw in body.items() if name not in _TRANSLATED | _WITHOUT_MEANING | _REFUSED.keys()}
    translated: dict[str, object] = {
        "messages": _messages(body),
        **to_tools(body),
        **_text(given(body, "text")),
        **_reasoning(given(body, "reasoning")),
        **_max_output(given(body, "max_output_tokens")),
        **_logprobs(body),
    }
    return passed | {name: Raw(_encode(value)) for name, value in translated.items()}


def included(body: dict[str, Raw]) -> list[str]:
    """The values of `include`."""
    raw = given(body, "include")
    return [] if raw is None else read(raw, _NAMES, "include")


def _refuse(body: dict[str, Raw]) -> None:
    for name, remedy in _REFUSED.items():
        if given(body, name) is not None:
            raise refused(name, f"{name}: {remedy}")
    background = given(body, "background")
    if background is not None and read(background, _BOOL, "background"):
        raise refused("background", "background: no responses are stored here: send false and use stream.")


def _messages(body: dict[str, Raw]) -> list[object]:
    raw, instructions = given(body, "input"), given(body, "instructions")
    if raw is None:
        raise refused("input", "input is missing: send a text or a list of items.")
    return to_messages(raw, None if instructions is None else read(instructions, _TEXT, "instructions"))


def _text(raw: Raw | None) -> dict[str, object]:
    if raw is None:
        return {}
    text = read(raw, _FIELDS, "text")
    form, verbosity = given(text, "format"), given(text, "verbosity")
    found = {"response_format": form and _format(form), "verbosity": verbosity}
    return {name: value for name, value in found.items() if value is not None}


def _format(raw: Raw) -> object:
    """Plain text is what chat gives anyway."""
    kind = read(raw, _KIND, "text.format").type
    if kind == "json_schema":
        return {"type": kind, "json_schema": read(raw, _SCHEMA, "text.format")}
    if kind not in ("text", "json_object"):
        raise refused("text.format.type", "text.format.type must be one of text, json_schema, json_object.")
    return {"type": kind} if kind == "json_object" else None


def _reasoning(raw: Raw | None) -> dict[str, object]:
    """`summary` says how the answer shows its thinking; fields of other providers (`max_tokens`) stay together."""
    if raw is None:
        return {}
    fields = read(raw, _FIELDS, "reasoning")
    effort, mode = given(fields, "effort"), given(fields, "mode")
    if mode is not None and read(mode, _TEXT, "reasoning.mode") != "standard":
        raise refused("reasoning.mode", "reasoning.mode: only 'standard' exists over chat: leave it out.")
    rest = {name: value for name, value in fields.items() if name not in (*SUMMARY, "effort", "mode", "context")}
    word = {} if effort is None else {"reasoning_effort": read(effort, _TEXT, "reasoning.effort")}
    return {**word, **({"reasoning": rest} if rest else {})}


def _max_output(raw: Raw | None) -> dict[str, object]:
    if raw is None:
        return {}
    limit = read(raw, _COUNT, "max_output_tokens")
    if limit < 1:
        raise refused("max_output_tokens", "max_output_tokens must be at least 1.")
    return {"max_completion_tokens": limit}


def _logprobs(body: dict[str, Raw]) -> dict[str, object]:
    """Chat refuses `top_logprobs` without `logprobs`; 0 is the default that a client may echo."""
    raw = given(body, "top_logprobs")
    top = 0 if raw is None else read(raw, _COUNT, "top_logprobs")
    if not 0 <= top <= 20:
        raise refused("top_logprobs", "top_logprobs must be between 0 and 20.")
    wanted = top > 0 or LOGPROBS in included(body)
    return {"logprobs": True, **({"top_logprobs": top} if top else {})} if wanted else {}
