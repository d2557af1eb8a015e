"""Anthropic's Messages API, version 2023-06-01. Field names as in the anthropic SDK 2.11.0."""

from adapters.anthropic.decode import AnthropicStream, decode
from adapters.anthropic.encode import encode
from adapters.chat import TranslatingAdapter


def anthropic() -> TranslatingAdapter:
    """The base URL ends before `/v1`."""
    return TranslatingAdapter(encode, decode, AnthropicStream)
