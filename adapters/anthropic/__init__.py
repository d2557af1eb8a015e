"""Anthropic's Messages API, version 2023-06-01. Field names as in the anthropic SDK 2.11.0."""

from collections.abc import Mapping

from adapters.anthropic.decode import AnthropicStream, decode
from adapters.anthropic.encode import encode
from adapters.failure import failure
from router.errors import ClientError
from router.types.attempt import Call, Failure, Reply, StreamDecoder, UpstreamRequest


class AnthropicAdapter:
    """Chat only. The base URL ends before `/v1`."""

    def encode(self, call: Call) -> UpstreamRequest:
        """Raises `ClientError` 400 for a body that is no chat request."""
        try:
            return encode(call)
        except RecursionError:
            raise ClientError(400, "invalid_request_error", "The request is nested too deeply.") from None

    def decode(self, call: Call, body: bytes) -> Reply:
        return decode(call, body)

    def stream(self, call: Call) -> StreamDecoder:
        return AnthropicStream(call)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        return failure(status, headers, body)


__all__ = ["AnthropicAdapter"]
