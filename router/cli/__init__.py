"""The `lowpass` command, with a module for each group. Imports are made where needed, to keep the shell fast."""

from router.cli import commands
from router.cli.app import app

__all__ = ["app", "commands", "main"]


def main() -> None:
    app()
