"""Step 7: the one door through which every outgoing byte passes."""
