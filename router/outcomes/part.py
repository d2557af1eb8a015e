"""What all verifiers of a policy have: a label, and whether their yes settles it."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=64)]
"""Travels in rows and metrics."""
Milliseconds = Annotated[int, Field(gt=0, le=60_000)]


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)


class Part(Shape):
    """`kind` is the subclass's."""

    label: Label | None = Field(None, description="Its name in rows and metrics; else its kind.")
    decides: bool = Field(True, description="Its yes means that the answer is right; else only that nothing is wrong.")

    @property
    def name(self) -> str:
        return self.label or str(getattr(self, "kind", ""))


def mistake(expected: str, remedy: str) -> PydanticCustomError:
    """What the value must be, and what to write; the policy's reader adds the place."""
    return PydanticCustomError("mistake", "must be {expected}: {remedy}", {"expected": expected, "remedy": remedy})
