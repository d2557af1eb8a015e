"""A request with placeholders in the place of what was found in it."""

from collections.abc import Mapping

from msgspec import Struct

from router.types.request import Request


class Redacted(Struct, frozen=True):
    """`classes` are those of `request` as it is now; `values` what each placeholder stands for. Never logged."""

    request: Request
    classes: frozenset[str]
    values: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Redacted({len(self.values)} values)"
