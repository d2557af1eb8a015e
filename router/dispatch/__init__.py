"""Step 7: the one egress through which every outgoing byte passes."""
