"""As in tests/gateway: a gateway for each module, under its own `policy(url)`; its books are right after each test."""

from tests.gateway.conftest import gateway, served
from tests.stores import postgres

__all__ = ["gateway", "postgres", "served"]
