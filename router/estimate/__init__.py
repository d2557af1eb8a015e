"""Step 4: what each target would do with a request, and the one price function."""
