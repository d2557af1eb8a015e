"""Another policy over recorded traffic: every decision made again, and what would have come of it."""

from router.replay.replay import Replayed, as_report, replay

__all__ = ["Replayed", "as_report", "replay"]
