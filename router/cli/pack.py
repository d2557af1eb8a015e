"""`lowpass ledger pack`: what a gateway does by itself, by hand."""

import typer

from router.cli.app import ledger
from router.terminal import ledger_of, settings_of


@ledger.command()
def pack() -> None:
    """Pack rows that are old enough, and drop those that were kept long enough. Gateways do the same by themselves."""
    from router.ledger.packed.upkeep import upkeep
    from router.types.clock import now_ms

    settings = settings_of(None)
    with ledger_of(settings) as found:
        found.migrate()
        packed, expired = upkeep(found, now_ms(), settings.keep_rows_ms)
    typer.echo(f"packed {packed} requests; the rows of {expired} segments have expired")
