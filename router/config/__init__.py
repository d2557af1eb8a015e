"""Reads policy files into a frozen `Config`, or reports every mistake with its place and remedy."""
