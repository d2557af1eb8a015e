"""Step 6 and 9: reserve before a byte leaves, settle once; no budget is overspent."""
