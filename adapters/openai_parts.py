"""Content parts of Mistral's reasoning models: in answers they become the text and the thoughts that clients expect.

Thoughts can't travel back: Mistral refuses a message with `reasoning_content`, as its row in the catalog says.
"""

import msgspec
from msgspec import Raw

from adapters.openai_wire import CHOICES, NULL, Answer, Part, absent

THOUGHTS = "messages.reasoning_content"
"""Among `Quirks.refuses`: the field of earlier answers that the provider does not take back."""

_FIELD = b'"reasoning_content"'
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_PARTS = msgspec.json.Decoder(list[Part])


def plain(fields: dict[str, Raw], answer: Answer) -> None:
    """Every message and delta of `fields` with its parts as `content` and `reasoning_content`."""
    if not any(isinstance(choice.said.content, list) for choice in answer.choices or ()):
        return
    choices = CHOICES.decode(fields["choices"])
    for choice in choices:
        choice.update({name: _told(choice[name]) for name in ("message", "delta") if not absent(choice, name)})
    fields["choices"] = _raw(choices)


def without_thoughts(body: dict[str, Raw]) -> dict[str, Raw]:
    """The request without the thoughts of earlier answers."""
    messages = body.get("messages", NULL)
    if _FIELD not in bytes(messages):
        return body
    kept = [
        {name: raw for name, raw in turn.items() if name != "reasoning_content"} for turn in CHOICES.decode(messages)
    ]
    return body | {"messages": _raw(kept)}


def _told(said: Raw) -> Raw:
    """One message; parts of another kind (references) stay as they are, for clients that know them."""
    members = _FIELDS.decode(said)
    content = members.get("content", NULL)
    if bytes(content)[:1] != b"[":
        return said
    parts = _PARTS.decode(content)
    if not {part.type for part in parts} <= {"text", "thinking"}:
        return said
    text, thought = ("".join(getattr(part, name) for part in parts) for name in ("said", "thought"))
    told: dict[str, object] = {**members, "content": text or None}
    return _raw(told | {"reasoning_content": thought} if thought else told)


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
