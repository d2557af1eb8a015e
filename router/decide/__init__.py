"""Step 5: policy, classification, estimates and health → an ordered plan. Pure."""
