"""Step 7: the single egress through which all outgoing bytes pass, and the code that asks targets for answers."""
