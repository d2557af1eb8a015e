"""Budgets in Redis, shared by several gateways; each step is one Lua script."""
