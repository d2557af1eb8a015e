"""`/v1/responses` over a target that only speaks chat: a pure translation in both directions."""

from router.api.responses.reply import from_chat
from router.api.responses.request import to_chat
from router.api.responses.stream import ResponsesStream

__all__ = ["ResponsesStream", "from_chat", "to_chat"]
