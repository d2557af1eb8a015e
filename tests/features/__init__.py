"""Text → numbers."""
