"""The ledger: every request and its cost, recorded exactly once, in SQLite or PostgreSQL."""
