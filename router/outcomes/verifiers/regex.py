"""Whether an expression is found in the answer, or must not be."""

from typing import Annotated, Any, Literal, Self

import re2
from pydantic import AfterValidator, Field, model_validator

from router.outcomes.part import Part, mistake
from router.outcomes.reading import calls_only
from router.types.outcome import Answer
from router.types.request import Request

_QUIET: Any = re2.Options()
_QUIET.log_errors = False


def _compiles(expression: str) -> str:
    try:
        re2.compile(expression, _QUIET)
    except re2.error as error:
        reason = error.args[0]
        said = reason.decode() if isinstance(reason, bytes) else str(reason)
        remedy = f"{said}; it has no look-around and no backreferences"
        raise mistake("a regular expression in RE2's syntax", remedy) from None
    return expression


Expression = Annotated[str, AfterValidator(_compiles), Field(min_length=1)]


class Regex(Part):
    """Case counts; write (?i) before an expression where it must not, (?s) where . is to match line breaks."""

    kind: Literal["regex"]
    must: Expression | None = Field(None, description="An RE2 expression that the answer's text must match somewhere.")
    must_not: Expression | None = Field(None, description="One that it must match nowhere.")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.must is None and self.must_not is None:
            raise mistake("a verifier with something to look for", "add must: or must_not: with an expression")
        return self

    def check(self, request: Request, answer: Answer) -> float | None:
        if calls_only(answer):
            return None
        found = self.must is None or _matches(self.must, answer.text)
        return float(found and not (self.must_not is not None and _matches(self.must_not, answer.text)))


def _matches(expression: str, text: str) -> bool:
    """re2 keeps what it compiled last."""
    return re2.compile(expression, _QUIET).search(text) is not None
