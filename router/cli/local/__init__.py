"""`lowpass local`: engines of one's own, planned, started and described for other platforms."""

from router.cli.local import manifests, plan

__all__ = ["manifests", "plan"]
