"""Step 3: what a request holds and asks for. Local, no network, a fraction of a millisecond."""
