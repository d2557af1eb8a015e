"""Whether the ledger is sound: every sum, every reference and every packed row looked at again."""

from router.ledger.verify.finding import Finding
from router.ledger.verify.verify import Check, Verified, verify, verify_budgets

__all__ = ["Check", "Finding", "Verified", "verify", "verify_budgets"]
