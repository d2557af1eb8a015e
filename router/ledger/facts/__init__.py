"""What the ledger knows, as a cube: sums of exact counts and amounts, by any of its dimensions."""
