"""What only developers run: it is not in the wheel."""
