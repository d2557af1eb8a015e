"""`judge:` of a route."""

from typing import Annotated

from pydantic import Field

from router.outcomes.part import Milliseconds, Shape


class Judge(Shape):
    """Asked as if by the client: with the request's own key, session and classes, and from the same budgets."""

    target: str = Field(min_length=1, description="Whom to ask.")
    share: Annotated[float, Field(gt=0, le=1)] = Field(0.05, description="Of the route's answers, at most.")
    rubric: Annotated[str, Field(max_length=4_000)] = Field("", description="What makes an answer of this route right.")
    max_output: Annotated[int, Field(ge=16, le=100_000)] = Field(2_048, description="Tokens, thinking included.")
    timeout_ms: Milliseconds = Field(60_000, description="For each of its two answers.")
