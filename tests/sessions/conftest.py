"""Every test of this folder that asks for a ledger, or for a kind of store, gets one of each."""

from tests.budget.conformance.conftest import kind
from tests.budget.redis_process import patient
from tests.stores import ledger, new_ledger, postgres

__all__ = ["kind", "ledger", "new_ledger", "patient", "postgres"]
