"""As in tests/gateway: a gateway for each module, under its own `policy(url)`; its books are right after each test."""

from tests.budget.redis_process import patient
from tests.gateway.conftest import gateway, served
from tests.stores import postgres

__all__ = ["gateway", "patient", "postgres", "served"]
