"""Budgets in Redis: several gateways, one Lua script a step."""

from router.budget.redis.connection import RedisRefused
from router.budget.redis.store import RedisBudgets

__all__ = ["RedisBudgets", "RedisRefused"]
