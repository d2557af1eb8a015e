"""Whether the answer is JSON of the form that was asked for."""

from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field

from router.outcomes.part import Part, mistake
from router.outcomes.reading import calls_only, field
from router.outcomes.schema import Claim, WrongSchema, holds, validator
from router.types.outcome import Answer
from router.types.request import Request

_AN_OBJECT = '{"type":"object"}'


def _valid(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        validator(_json(schema))
    except WrongSchema as error:
        remedy = f"correct it at {error}; everything that it refers to must be in it"
        raise mistake("a JSON Schema", remedy) from None
    return schema


def _json(schema: Any) -> str:
    """A policy's numbers with a fraction are decimals."""
    return msgspec.json.encode(schema, enc_hook=_plain).decode()


def _plain(value: Any) -> float:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError


class JsonSchema(Part):
    """The request's own `response_format`, or the policy's schema. A request with neither is not judged."""

    kind: Literal["json_schema"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only well-formed.")
    schema_: Annotated[dict[str, Any], AfterValidator(_valid)] | None = Field(
        None, alias="schema", description="In the place of the request's own."
    )

    def claims(self, request: Request, answer: Answer) -> tuple[Claim, ...] | float | None:
        schema = _asked_for(request) if self.schema_ is None else _json(self.schema_)
        if schema is None or calls_only(answer):
            return None
        try:
            msgspec.json.decode(answer.text)
        except msgspec.DecodeError:
            return 0.0
        return (Claim(schema, answer.text),)

    def check(self, request: Request, answer: Answer) -> float | None:
        """Of the request's own schema only in a process that may hang."""
        found = self.claims(request, answer)
        return float(holds(found)) if isinstance(found, tuple) else found


def _asked_for(request: Request) -> str | None:
    form = field(request, "response_format")
    if not isinstance(form, dict):
        return None
    if form.get("type") == "json_object":
        return _AN_OBJECT
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    return None if schema is None else _json(schema)
