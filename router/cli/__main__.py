"""Runs the `lowpass` command: `python -m router.cli`."""

from router.cli import main

main()
