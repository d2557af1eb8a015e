"""What a table of outcomes says of targets: chances, costs, and how far a prompt is from all that was seen."""
