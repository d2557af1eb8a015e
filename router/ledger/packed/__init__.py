"""Rows of the past in few bytes: as they were, their facts column by column, and sums of these by hour."""
