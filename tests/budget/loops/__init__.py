"""The loop breaker against made-up traffic that looks like the real one: what must pass, and what must trip."""
