"""What ships as priors, and what they make of a card."""
