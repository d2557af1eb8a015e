"""What a request asks for."""

from enum import StrEnum


class Task(StrEnum):
    CHAT = "chat"
    CODE = "code"
    MATHS = "maths"
    FACTUAL = "factual"
    REASONING = "reasoning"
    EXTRACTION = "extraction"
    SUMMARY = "summary"
    TRANSLATION = "translation"
    CLASSIFICATION = "classification"
    CREATIVE = "creative"
    TOOL_USE = "tool_use"
    EMBEDDING = "embedding"
    GUARD = "guard"
    """Whether a text may pass. Only ever stated, by callers and routes: no text says it of itself."""
