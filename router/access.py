"""The ledger of a gateway, and the keys in it: who may call."""

from router.api.auth import Keyring
from router.ledger.adjust import billing
from router.ledger.keys import callers, every, limits
from router.ledger.ledger import Ledger, ledger_at
from router.settings import Settings


def ledger_of(settings: Settings) -> Ledger:
    """Raises `SettingError`."""
    return ledger_at(settings.sqlite, settings.database_url)


def keyring(settings: Settings) -> Keyring:
    """Open to all only on loopback, and only while no key was ever made. Makes the ledger."""
    ledger = ledger_of(settings)
    ledger.migrate()
    ring = Keyring({}, open_to_all=False)
    refresh(ring, ledger, settings)
    return ring


def refresh(ring: Keyring, ledger: Ledger, settings: Settings) -> tuple[dict[str, int], dict[str, float]]:
    """Returns the limits of budgets that were set, by id of a budget or an account, and what statements taught of
    estimates, by target.

    Reads only: it runs once a second, beside the requests' own commits.
    """
    with ledger.reading() as connection:
        ring.callers = callers(connection)
        ring.open_to_all = settings.loopback and not every(connection)
        return {limit.id: limit.size for limit in limits(connection)}, billing(connection)
