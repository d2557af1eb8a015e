"""Another policy over recorded traffic: every decision made again, and what would have come of it."""

from router.replay.replay import replay
from router.replay.report import Replayed, as_report

__all__ = ["Replayed", "as_report", "replay"]
