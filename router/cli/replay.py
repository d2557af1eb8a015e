"""`lowpass replay`: another policy over recorded traffic."""
