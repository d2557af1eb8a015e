"""Local engines as the request path sees them: how busy they are, and which replica a request goes to."""
