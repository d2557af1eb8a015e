"""`lowpass ledger`: verify, pack, back up and restore."""
