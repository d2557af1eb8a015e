"""Google's Gemini API, `generateContent`. Field names as in google-genai 3.4.0."""

from collections.abc import Mapping

from adapters.failure import failure
from adapters.gemini.decode import GeminiStream, decode
from adapters.gemini.encode import encode
from router.errors import ClientError
from router.types.attempt import Call, Failure, Reply, StreamDecoder, UpstreamRequest


class GeminiAdapter:
    """Chat only. The base URL ends before `/v1beta`."""

    def encode(self, call: Call) -> UpstreamRequest:
        """Raises `ClientError` 400 for a body that is no chat request."""
        try:
            return encode(call)
        except RecursionError:
            raise ClientError(400, "invalid_request_error", "The request is nested too deeply.") from None

    def decode(self, call: Call, body: bytes) -> Reply:
        return decode(call, body)

    def stream(self, call: Call) -> StreamDecoder:
        return GeminiStream(call)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        return failure(status, headers, body)


__all__ = ["GeminiAdapter"]
