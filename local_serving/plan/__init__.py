"""Whether an engine fits, and what its tokens will cost, before it is launched: estimates from public figures."""
