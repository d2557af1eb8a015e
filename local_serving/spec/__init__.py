"""Engine specs: what they hold, and how they are read."""
