"""Somebody else says whether the answer is right: a service of the operator's, asked over HTTP."""

from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import re2
from pydantic import AfterValidator, Field, SecretStr, model_validator

from router.outcomes.part import Milliseconds, Part, Shape, mistake
from router.types.target import Model, Provider, Target, Terms, Wire

_ADDRESS: Any = re2.compile(r"https?://[^\s/?#@]+(/[^\s#]*)?")


def _reached(url: str) -> str:
    try:
        valid = _ADDRESS.fullmatch(url) is not None and url.isascii() and urlsplit(url).port != 0
    except ValueError:
        valid = False
    if not valid:
        raise mistake("a web address", "write it like http://127.0.0.1:8000/verify, without user, blanks or #")
    return url


def _dated(day: str) -> str:
    try:
        datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise mistake("a date", "write it like 2027-01-01") from None
    return day


Url = Annotated[str, AfterValidator(_reached)]
Day = Annotated[str, AfterValidator(_dated)]


class Promises(Shape):
    """What its operator vouches for, in the words of a target's terms. What is left out is not promised."""

    training: bool | None = Field(None, description="It may train on what it is told.")
    retention_days: Annotated[int, Field(ge=0)] | None = Field(None, description="How long that is kept.")
    baa: bool = Field(False, description="A business associate agreement covers it.")
    evidence: str = Field("", description="The contract or page that says so.")
    expires: Day | None = Field(None, description="From this day on (UTC) it is told nothing.")

    @model_validator(mode="after")
    def _vouched(self) -> Self:
        claims = self.training is False or self.retention_days is not None or self.baa
        if claims and not self.evidence:
            raise mistake("vouched for", 'add evidence: "the contract that says so"')
        return self

    def terms(self) -> Terms:
        return Terms(
            training=self.training,
            retention_days=self.retention_days,
            baa=self.baa,
            evidence=self.evidence,
            expires_ms=None if self.expires is None else _moment_ms(self.expires),
        )


class Http(Part):
    """POST of `{answer, expected, request_id, target}`; it says `{"score": 0 … 1}` or `{"passed": true}`."""

    kind: Literal["http"]
    url: Url = Field(description="Where it listens.")
    timeout_ms: Milliseconds = 2_000
    api_key: SecretStr | None = Field(None, description='Sent as a bearer token; a reference: "${VERIFIER_KEY}".')
    with_request: bool = Field(False, description="It is told the request's body as well.")
    local: bool = Field(False, description="It runs on machines of yours: nothing leaves.")
    region: str = Field("", description="Where it runs, in the words that classes use.")
    jurisdiction: str = Field("", description="ISO 3166 code of the country of whoever runs it.")
    terms: Promises = Promises()

    @model_validator(mode="after")
    def _sound(self) -> Self:
        key = self.api_key.get_secret_value() if self.api_key else ""
        if any(not "!" <= character <= "~" for character in key):
            raise mistake("reachable with its key", "set api_key without blanks and line breaks")
        if self.local and self.terms != Promises():
            raise mistake("either local or bound by terms", "remove terms: nobody else is there to promise anything")
        return self

    @cached_property
    def place(self) -> Target:
        """As the door sees it: a target like any other."""
        parts = urlsplit(self.url)
        base = f"{parts.scheme}://{parts.netloc}"
        model = Model(id=self.name, name=self.name, context=0, max_output=0, capabilities=frozenset())
        provider = Provider(
            id=f"verifier.{self.name}",
            wire=Wire.OPENAI_COMPATIBLE,
            base_url=base,
            jurisdiction=self.jurisdiction,
            local=self.local,
        )
        return Target(
            id=f"verifier.{self.name}",
            model=model,
            provider=provider,
            base_url=base,
            region=self.region,
            terms=self.terms.terms(),
        )

    @property
    def path(self) -> str:
        parts = urlsplit(self.url)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _moment_ms(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)
