"""The ledger in forms that other systems read."""
