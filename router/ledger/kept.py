"""A whole request, as its rows have it."""

from collections.abc import Mapping

from msgspec import Struct

from router.types.journal import Value

Line = Mapping[str, Value]
"""Column → value."""


class Kept(Struct, frozen=True):
    """`attempts` by number, `bookings` by account; `decision` is None where there is none."""

    request: Line
    attempts: tuple[Line, ...]
    bookings: tuple[Line, ...]
    decision: Line | None

    @property
    def id(self) -> str:
        return str(self.request["id"])

    @property
    def started_ms(self) -> int:
        began = self.request["started_ms"]
        assert isinstance(began, int)  # noqa: S101
        return began
