"""`/v1/responses` over a target that only speaks chat: a pure translation in both directions."""
