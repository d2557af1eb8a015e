"""`lowpass`: every command, a file a group. Imports happen inside the commands, so that the shell stays fast."""

from router.cli import bench, export, gateway, keys, ledger, pack, replay, reports
from router.cli.app import app

__all__ = ["app", "bench", "export", "gateway", "keys", "ledger", "main", "pack", "replay", "reports"]


def main() -> None:
    app()
