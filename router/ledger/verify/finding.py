"""What is wrong, and in which row."""

from msgspec import Struct


class Finding(Struct, frozen=True):
    table: str
    row: str
    """Its key."""
    says: str

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.says}"
