"""What others may watch of requests: a line each, spans and metrics. Off unless asked for, and never any text."""

from router.observe.observer import Observed, Observer, observer

__all__ = ["Observed", "Observer", "observer"]
