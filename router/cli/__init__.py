"""`lowpass`: every command, a file a group. Imports happen inside the commands, so that the shell stays fast."""

from router.cli import bench, gateway, keys, ledger, local, reports
from router.cli import reports as export
from router.cli import reports as replay
from router.cli.app import app

__all__ = ["app", "bench", "export", "gateway", "keys", "ledger", "local", "main", "replay", "reports"]


def main() -> None:
    app()
