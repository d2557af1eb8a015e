"""Thinking text, and the opaque traces that a provider wants back unchanged in the next turn.

Chat providers say it in four ways: `reasoning_content`, `reasoning`, `thinking_blocks` (signed, Anthropic) and
`reasoning_details` (OpenRouter). A Responses client keeps only `encrypted_content`, so the traces travel in it: as
base64 of JSON behind a version prefix. It is an envelope and no secret, and a client may forge it: on the way back
it can fill exactly the fields of `Traces` in an assistant message, which the client could have sent anyway.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, Encoder

from router.api.responses.body import refused

PREFIX = "lowpass1."
Block = dict[str, object]


class Traces(Struct, frozen=True, omit_defaults=True):
    """What a reasoning item carries besides its text; `reasoning_content` is filled only if no block holds the text."""

    reasoning_content: str = ""
    thinking_blocks: list[Block] = []
    reasoning_details: list[Block] = []

    @property
    def opaque(self) -> bool:
        return bool(self.thinking_blocks or self.reasoning_details)

    @property
    def text(self) -> str:
        return self.reasoning_content or _words(self.thinking_blocks) or _words(self.reasoning_details)


_ENCODER = Encoder()
_DECODER = Decoder(Traces)
_TEXT = ("thinking", "text", "summary")


def seal(traces: Traces) -> str:
    """The value of `encrypted_content`."""
    return PREFIX + urlsafe_b64encode(_ENCODER.encode(traces)).decode()


def unseal(value: str | None, param: str) -> Traces:
    """Empty for a value that another provider made: only its maker can read that."""
    if not value or not value.startswith(PREFIX):
        return Traces()
    try:
        return _DECODER.decode(urlsafe_b64decode(value.removeprefix(PREFIX)))
    except (DecodeError, ValueError, RecursionError):
        raise refused(param, f"{param} is damaged: send it back unchanged, or leave the reasoning item out.") from None


def kept(text: str, blocks: list[Block], details: list[Block]) -> Traces:
    """The traces of a thought; its text only where no block repeats it."""
    return Traces("" if _words(blocks) or _words(details) else text, blocks, details)


def _words(blocks: list[Block]) -> str:
    return "".join(str(block[key]) for block in blocks for key in _TEXT if block.get(key))


def merged(pieces: list[Block]) -> list[Block]:
    """Streamed pieces as whole blocks; a block that came whole stays as it is."""
    runs: list[list[Block]] = []
    for piece in pieces:
        if runs and _continues(runs[-1][-1], piece):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [_joined(run) for run in runs]


def _continues(last: Block, piece: Block) -> bool:
    """A signature ends a block; `data` (redacted, encrypted) is never split."""
    same = all(last.get(key) == piece.get(key) for key in ("type", "index"))
    return same and not last.get("signature") and "data" not in last and "data" not in piece


def _joined(run: list[Block]) -> Block:
    block = {key: value for piece in run for key, value in piece.items() if value not in (None, "")}
    return {**block, **{key: "".join(str(p.get(key) or "") for p in run) for key in _TEXT if key in block}}
