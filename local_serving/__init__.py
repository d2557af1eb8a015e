"""Launches and watches local engines, each of which serves OpenAI's API on its own loopback port."""


class EngineError(Exception):
    """A local engine can't be described, started or reached. The message is one line with the reason and a remedy."""
