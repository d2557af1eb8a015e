"""`lowpass`: every command, a file a group. Imports happen inside the commands, so that the shell stays fast."""

from router.cli import bench, gateway, keys, ledger, local, reports
from router.cli.app import app

__all__ = ["app", "bench", "gateway", "keys", "ledger", "local", "main", "reports"]


def main() -> None:
    app()
