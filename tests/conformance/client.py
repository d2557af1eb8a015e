"""Asks with the official client and reads what a user would read: whole and streamed answers in one form."""

import json
from typing import Any

import openai
from msgspec import Struct

from tests.conformance.expected import Case, Said
from tests.gateway.running import MESSAGES, until


class Seen(Struct, frozen=True, kw_only=True):
    """An answer as the client got it; `request_id` is the ledger's."""

    ids: set[str]
    models: set[str]
    created: set[int]
    choices: list[Said]
    usages: list[dict[str, Any]]
    """Of a stream, one for each chunk that carries one."""
    last_has_choices: bool = False
    headers: dict[str, str]

    @property
    def request_id(self) -> str:
        return self.headers["x-request-id"]


def body(case: Case, *, usage: bool = True) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": case.target, "messages": MESSAGES, **case.asks}
    if case.streamed:
        asked["stream"] = True
    if case.streamed and usage:
        asked["stream_options"] = {"include_usage": True}
    return asked


def ask(client: openai.OpenAI, case: Case, *, usage: bool = True) -> Seen:
    return told(client, body(case, usage=usage))


def told(client: openai.OpenAI, asked: dict[str, Any]) -> Seen:
    if not asked.get("stream"):
        raw = client.chat.completions.with_raw_response.create(**asked)
        return _seen([raw.parse()], dict(raw.headers))
    with client.chat.completions.with_streaming_response.create(**asked) as response:
        return _seen(list(response.parse()), dict(response.headers))


def broken(client: openai.OpenAI, case: Case) -> tuple[str, openai.APIError | None, str]:
    """The text until a stream broke, the error that the client raised (None: it ended cleanly), the request's id.

    A busy gateway may read the break together with the beginning, and then no stream begins (502): asked again.
    """
    return until(lambda: _broken(client, case))


def _broken(client: openai.OpenAI, case: Case) -> tuple[str, openai.APIError | None, str] | None:
    text = ""
    try:
        with client.chat.completions.with_streaming_response.create(**body(case)) as response:
            try:
                for chunk in response.parse():
                    text += "".join(choice.delta.content or "" for choice in chunk.choices)
            except openai.APIError as error:
                return text, error, response.headers["x-request-id"]
            return text, None, response.headers["x-request-id"]
    except openai.InternalServerError:
        return None


def _seen(parts: list[Any], headers: dict[str, str]) -> Seen:
    """A whole answer is a stream of one piece."""
    indices = sorted({choice.index for part in parts for choice in part.choices})
    by_index = [[choice for part in parts for choice in part.choices if choice.index == at] for at in indices]
    return Seen(
        ids={part.id for part in parts},
        models={part.model for part in parts},
        created={part.created for part in parts},
        choices=[_said(choices) for choices in by_index],
        usages=[part.usage.to_dict() for part in parts if part.usage],
        last_has_choices=bool(parts[-1].choices),
        headers=headers,
    )


def _said(choices: list[Any]) -> Said:
    """The pieces of one choice, put together as a client does."""
    deltas = [choice.delta if hasattr(choice, "delta") else choice.message for choice in choices]
    (finish,) = [choice.finish_reason for choice in choices if choice.finish_reason]
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    return Said(
        text="".join(delta.content or "" for delta in deltas),
        reasoning="".join(
            [getattr(delta, name, None) or "" for delta in deltas for name in ("reasoning_content", "reasoning")]
        ),
        refusal="".join(delta.refusal or "" for delta in deltas),
        calls=_calls(deltas),
        finish=finish,
        tokens=tuple(token.token for choice in choices if choice.logprobs for token in choice.logprobs.content or ()),
    )


def _calls(deltas: list[Any]) -> tuple[tuple[str, str, str], ...]:
    grown: dict[int, list[str]] = {}
    for delta in deltas:
        for at, piece in enumerate(delta.tool_calls or ()):
            call = grown.setdefault(getattr(piece, "index", at), ["", "", ""])
            for part, more in enumerate((piece.id, piece.function.name, piece.function.arguments)):
                call[part] += more or ""
    return tuple((number, name, arguments) for number, name, arguments in grown.values())


def same(got: Said, wanted: Said) -> bool:
    """Equal, with arguments compared as JSON and an expected id of "" standing for any."""
    if len(got.calls) != len(wanted.calls):
        return False
    pairs = zip(got.calls, wanted.calls, strict=True)
    alike = all(
        got_id == (wanted_id or got_id) != "" and name == wanted_name and json.loads(text) == json.loads(wanted_text)
        for (got_id, name, text), (wanted_id, wanted_name, wanted_text) in pairs
    )
    fields = ("text", "reasoning", "refusal", "finish", "tokens")
    return alike and all(getattr(got, field) == getattr(wanted, field) for field in fields)
