"""`lowpass`: every command, a file a group. Imports happen where they are needed, so that the shell stays fast."""

from router.cli import commands
from router.cli.app import app

__all__ = ["app", "commands", "main"]


def main() -> None:
    app()
