"""JSON Schema over what models write. Schemas come from clients, and some never end: ask `holds` in a child process."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

BACKTRACK = 100_000
"""Steps that one `pattern` may take."""


class Claim(Struct, frozen=True):
    """Both are JSON: the value is to be valid under the schema."""

    schema: str
    value: str


class WrongSchema(ValueError):
    """It is none, or refers to one that is elsewhere. Says where, never what stands there."""


def holds(claims: Sequence[Claim]) -> bool:
    """Whether all of them do. Raises `WrongSchema` and `msgspec.DecodeError`."""
    return all(validator(claim.schema).is_valid(msgspec.json.decode(claim.value)) for claim in claims)


def child(told: object) -> bool:
    """`holds`, as it is called in a child process."""
    return holds(msgspec.convert(told, list[Claim]))


@lru_cache(maxsize=256)
def validator(schema: str) -> Any:
    """Imported only here, since a gateway itself rarely needs it. Nothing is fetched that a schema refers to."""
    import jsonschema_rs

    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK)
    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), pattern_options=options, retriever=_refused)
    except jsonschema_rs.ValidationError as error:
        raise WrongSchema("/".join(map(str, error.instance_path)) or "its top") from None
    except ValueError:
        raise WrongSchema("a reference") from None


def _refused(uri: str) -> Any:
    raise ValueError("not fetched")
