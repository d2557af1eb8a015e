"""`lowpass local`: engines of one's own, planned, started and described for other platforms."""

from router.cli.local import manifests, plan, run

__all__ = ["manifests", "plan", "run"]
