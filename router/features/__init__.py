"""Text → numbers: a static embedding, and cheap marks of what kind of request it is. Local, deterministic, bounded."""
