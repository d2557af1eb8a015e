"""Measurements of the gateway: what a request costs it, beside its peers."""
