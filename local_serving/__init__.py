"""Launches local engines and watches them: they serve OpenAI's API on a loopback port of their own."""


class EngineError(Exception):
    """A local engine can't be described, started or reached; the message is one line with the reason and a remedy."""
