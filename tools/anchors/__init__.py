"""Requests of everyday traffic, written for lowpass, with how hard they are."""
