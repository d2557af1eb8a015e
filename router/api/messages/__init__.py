"""`/v1/messages`, Anthropic's API, over any target: a pure translation to chat and back."""

from router.api.messages.reply import MessagesStream, envelope, from_chat
from router.api.messages.request import Translated, to_chat

__all__ = ["MessagesStream", "Translated", "envelope", "from_chat", "to_chat"]
