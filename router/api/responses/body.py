"""Reads the parts of a request body; whatever is wrong becomes a 400 that names the parameter and the remedy."""

from typing import TypeVar

from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from router.errors import ClientError

T = TypeVar("T")
_MISSING = "Object missing required field `"
_QUOTE = ord('"')


def refused(param: str, message: str) -> ClientError:
    """The 400 for a field that can't be served."""
    return ClientError(400, "invalid_request_error", message, param=param)


def given(body: dict[str, Raw], name: str) -> Raw | None:
    """The field's bytes; None if it is absent or null, which mean the same in the Responses API."""
    raw = body.get(name)
    return None if raw is None or bytes(memoryview(raw)[:4]) == b"null" else raw


def is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == _QUOTE


def read(raw: Raw, decoder: Decoder[T], param: str) -> T:
    """Decodes one value; raises a 400 whose `param` is the full path of the mistake."""
    try:
        return decoder.decode(raw)
    except RecursionError:
        raise refused(param, f"{param} is nested too deeply: flatten it.") from None
    except (DecodeError, UnicodeDecodeError) as error:
        raise _located(str(error), param) from None


def _located(message: str, param: str) -> ClientError:
    """msgspec says `… - at `$[0].name``: move the path into the parameter."""
    what, _, path = message.partition(" - at `$")
    place = param + path.rstrip("`")
    if what.startswith(_MISSING):
        place += "." + what.removeprefix(_MISSING).rstrip("`")
    return refused(place, f"{place}: {what}. Send the value in the form that the Responses API documents.")
