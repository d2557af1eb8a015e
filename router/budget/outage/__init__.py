"""What budgets allow while their store is gone."""
