"""What other systems are given: whole, exact, and as their specifications say."""
