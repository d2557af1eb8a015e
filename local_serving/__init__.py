"""Launches local engines and watches them: they serve OpenAI's API on a loopback port of their own."""
