"""The proof: whatever is planned, and whatever breaks, nothing reaches a place that its policy forbids."""
