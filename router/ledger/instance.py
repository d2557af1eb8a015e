"""The secret of a ledger: made with it, shared by all of its gateways, known to nobody else."""

import secrets

from router.ledger.ledger import Ledger
from router.types.secret import Secret

_OFFER = "INSERT INTO instance (id, secret) VALUES (1, ?) ON CONFLICT DO NOTHING"
_READ = "SELECT secret FROM instance WHERE id = 1"


def instance_secret(ledger: Ledger) -> Secret:
    """Made at the first call. Raises `LedgerUnavailable`."""
    with ledger.writing() as connection:
        connection.execute(_OFFER, (secrets.token_hex(32),))
        return Secret(connection.execute(_READ).fetchone()[0])
