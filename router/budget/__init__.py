"""Budgets: each request reserves its worst-case cost before it is sent upstream and is settled exactly once."""
