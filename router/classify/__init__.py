"""Step 3, classify: a request's sensitivity and difficulty. Runs locally, in a fraction of a millisecond."""
