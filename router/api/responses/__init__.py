"""`/v1/responses` over targets that only have chat: a pure translation in both directions."""
