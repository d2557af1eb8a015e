"""Google's Gemini API, `generateContent`. Field names as in google-genai 3.4.0."""

from adapters.chat import TranslatingAdapter
from adapters.gemini.decode import GeminiStream, decode
from adapters.gemini.encode import encode


def gemini() -> TranslatingAdapter:
    """The base URL ends before `/v1beta`."""
    return TranslatingAdapter(encode, decode, GeminiStream)
