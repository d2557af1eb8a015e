"""`/v1/messages`, Anthropic's API, over any target: a pure translation to chat and back."""
