"""Budgets in Redis: several gateways, one Lua script a step."""
