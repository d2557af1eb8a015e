"""Whether there is an answer at all."""

from typing import Literal

from pydantic import Field

from router.outcomes.part import Part
from router.types.outcome import Answer
from router.types.request import Request


class Empty(Part):
    """Blanks are none; a call of a tool and a refusal are one."""

    kind: Literal["empty"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only there.")

    def check(self, request: Request, answer: Answer) -> float | None:
        return float(bool(answer.text.strip() or answer.tool_calls or answer.refusal))
