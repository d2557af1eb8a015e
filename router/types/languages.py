"""Which languages a request is about."""

from msgspec import Struct


class Languages(Struct, frozen=True):
    """ISO 639-1 codes, and English names; "" where it is not clear."""

    source: str = ""
    """What its text is in …"""
    target: str = ""
    """… and what it is to be translated into, where it says so."""
    source_name: str = ""
    target_name: str = ""
    text: str = ""
    """What its user said last, without the instruction before it ("Translate into French: …")."""

    def __repr__(self) -> str:
        return f"Languages({self.source!r}, {self.target!r})"


UNKNOWN = Languages()
