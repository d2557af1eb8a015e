"""Frozen values that travel between the nine steps. Leaves: nothing here imports another part of lowpass."""
