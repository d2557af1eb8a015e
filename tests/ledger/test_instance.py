"""The secret of a ledger: one for all of its gateways."""

from router.ledger.instance import instance_secret
from router.ledger.ledger import Ledger


def test_a_ledger_has_one_secret_for_ever(ledger: Ledger) -> None:
    secret = instance_secret(ledger)
    assert len(secret.reveal()) == 64
    assert instance_secret(ledger) == secret
    assert secret.reveal() not in repr(secret)
