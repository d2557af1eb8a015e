"""Replay of recorded traffic under another policy: decisions are made again and their effects estimated."""

from router.replay.replay import Replayed, as_report, replay

__all__ = ["Replayed", "as_report", "replay"]
