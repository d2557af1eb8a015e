"""`lowpass`: every command, a file a group. Imports happen inside the commands, so that the shell stays fast."""

from router.cli import bench, export, gateway, keys, ledger, local, replay, reports
from router.cli.app import app

__all__ = ["app", "bench", "export", "gateway", "keys", "ledger", "local", "main", "replay", "reports"]


def main() -> None:
    app()
