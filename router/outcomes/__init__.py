"""How good answers are: verifiers and a judge say so, and what they say is learned from. Imported by a child process
too, so nothing is imported here."""
