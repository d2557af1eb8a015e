"""`lowpass local`: engines of one's own, planned, started and described for other platforms."""

from router.cli.local import plan

__all__ = ["plan"]
