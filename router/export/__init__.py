"""Exports of the ledger in formats that other systems read."""
