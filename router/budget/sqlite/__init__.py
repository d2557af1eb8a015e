"""Budgets in the ledger's own SQLite file: one machine, several processes."""

from router.budget.sqlite.store import SqliteBudgets

__all__ = ["SqliteBudgets"]
