"""What sessions have seen: it sticks to them. Kept where the budgets are."""
