"""Reads how busy engines are, from their `/metrics`."""

from local_serving.watch.watch import Watch
from local_serving.watch.words import words_of

__all__ = ["Watch", "words_of"]
