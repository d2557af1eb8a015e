"""`lowpass`: every command, a file a group. Imports happen where they are needed, so that the shell stays fast."""

from router.cli import gateway, reports
from router.cli.app import app

__all__ = ["app", "gateway", "main", "reports"]


def main() -> None:
    app()
