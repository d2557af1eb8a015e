"""The exception tree, and the table of what each kind of failure means.

LowpassError
├── ClientError       the request can't be served as it is: status, type and code for the client
├── UpstreamFailure   an attempt failed; dispatch looks up its kind in TABLE
├── DataError         a data file that ships with lowpass is missing or damaged
└── ConfigError       a policy file is wrong; has a Problem for each mistake
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, ValidationError

from router.types.attempt import ErrorKind, Failure, UpstreamResponse

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError

    from router.types.yaml_file import Problem


class LowpassError(Exception):
    """Root of everything that lowpass raises on purpose."""


class DataError(LowpassError):
    """A data file of lowpass or of a package is missing, damaged or of another version. Says which, and what to do."""


class ErrorRule(Struct, frozen=True):
    """What to do about a kind of failure, and what the client gets if it is the last one."""

    status: int
    retry: bool = False
    """Whether the same target may be asked again."""
    fall_back: bool = False
    """Whether the next target may be asked."""
    trips: bool = False
    """Whether it counts against the target's circuit breaker."""
    type: str = "api_error"
    code: str = "upstream_error"


TABLE = msgspec.yaml.decode(Path(__file__).with_name("errors.yaml").read_bytes(), type=dict[ErrorKind, ErrorRule])


class ClientError(LowpassError):
    """lowpass's own answer with a status other than 2xx, in OpenAI's envelope."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        extra: dict[str, object] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.type, self.param, self.extra, self.headers = type, param, extra or {}, headers

    def envelope(self) -> dict[str, object]:
        fields = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**fields, **self.extra}}


def invalid(param: str | None, message: str) -> ClientError:
    """Returns the 400 for an invalid request; `param` is the field at fault."""
    return ClientError(400, "invalid_request_error", message, param=param)


def wrong(param: str, remedy: str) -> ClientError:
    """Returns the 400 whose message begins with the parameter."""
    return invalid(param, f"{param}: {remedy}")


def misplaced(error: Exception, param: str = "") -> tuple[str, str]:
    """Returns msgspec's message about the value at `param`, and the mistake's full path. Such messages are: Expected
    `int`, got `str` - at `$.n`; or: Object missing required field `model`."""
    message, _, path = str(error).partition(" - at `$")
    named = _NAMED.match(message)
    return message, f"{param}{path.rstrip('`')}{f'.{named[1]}' if named else ''}".lstrip(".")


_NAMED = re.compile("Object (?:missing required|contains unknown) field `(.*)`")


def unreadable(error: Exception) -> ClientError:
    """Returns the 400 for a body that msgspec rejects."""
    if isinstance(error, RecursionError):
        return invalid(None, "The body is nested too deeply.")
    if not isinstance(error, ValidationError):
        return invalid(None, f"The body is not JSON: {error}.")
    message, param = misplaced(error)
    return invalid(param or None, f"{message}{f' in {param}' if param else ''}.")


class UpstreamFailure(LowpassError):
    """A failed attempt. The message may quote the provider, so it goes to the client only and never to a log."""

    def __init__(self, failure: Failure, late: UpstreamResponse | None = None) -> None:
        """`late` is an answer that may still come (`Timeouts.read_on`). It must be read to its end or closed."""
        super().__init__(failure.kind.value)
        self.failure, self.late = failure, late
        self.before = b""
        """Events that arrived together with the one that can't be read, and came before it."""


class ConfigError(LowpassError):
    """All problems of a policy at once."""

    def __init__(self, problems: "tuple[Problem, ...]") -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def mistake(expected: str, remedy: str) -> "PydanticCustomError":
    """Returns the error for a policy's wrong value: what it must be, and what to write. The reader adds the place."""
    from pydantic_core import PydanticCustomError  # most processes that know errors read no policy

    return PydanticCustomError("mistake", "must be {expected}: {remedy}", {"expected": expected, "remedy": remedy})
