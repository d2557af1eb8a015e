"""Tests of the scripted upstream itself."""
