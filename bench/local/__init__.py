"""Measurements of local engines: `lowpass bench local`."""
