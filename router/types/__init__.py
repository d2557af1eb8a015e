"""Frozen values that the nine steps of a request pass to each other. Nothing here imports another part of lowpass."""
