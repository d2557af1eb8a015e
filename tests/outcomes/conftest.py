"""Every test of this folder that asks for a ledger gets one in each place."""

from tests.stores import ledger, new_ledger, new_sqlite, postgres

__all__ = ["ledger", "new_ledger", "new_sqlite", "postgres"]
