"""Whether the answer was cut off."""

from typing import Literal

from pydantic import Field

from router.outcomes.part import Part
from router.types.outcome import Answer
from router.types.request import Request


class Truncated(Part):
    """It ended because of its length, or thinking left nothing to be seen."""

    kind: Literal["truncated"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only whole.")

    def check(self, request: Request, answer: Answer) -> float | None:
        visible = bool(answer.text.strip() or answer.tool_calls or answer.refusal)
        return float(visible and answer.finish_reason != "length")
