"""Step 9: what happened and what it cost, exactly once, in SQLite."""
