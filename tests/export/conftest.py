"""Ledgers in both places."""

from tests.stores import ledger, new_ledger, new_sqlite, postgres

__all__ = ["ledger", "new_ledger", "new_sqlite", "postgres"]
