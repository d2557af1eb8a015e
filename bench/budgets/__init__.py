"""Budgets under load and under kills, with real processes, SQLite and Redis: `lowpass bench budgets`."""
