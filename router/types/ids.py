"""UUIDv7 ids (RFC 9562 §5.7): sortable by time, so that the ledger's primary key is also its order."""

from random import getrandbits

from router.types.clock import now_ms

_VERSION_7 = 0x7 << 76
_VARIANT_RFC = 0x2 << 62


def new_id() -> str:
    """A UUIDv7 as 32 hex digits; unique, not secret."""
    random_a, random_b = getrandbits(12) << 64, getrandbits(62)
    return f"{now_ms() << 80 | _VERSION_7 | random_a | _VARIANT_RFC | random_b:032x}"


def least_id(at_ms: int) -> str:
    """What ids of that moment (Unix ms) and of later ones are not less than."""
    return f"{max(0, at_ms):012x}"


def created_ms(identifier: str) -> int:
    """Unix time in ms at which `new_id` made this id."""
    return int(identifier[:12], 16)
