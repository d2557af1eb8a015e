"""Fixtures for the tests of budgets."""

from tests.budget.redis_process import patient

__all__ = ["patient"]
