"""All checks of a policy: built-in verifiers, the operator's own over HTTP or in Python, and the judge."""

import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from importlib.machinery import PathFinder
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import re2
from msgspec import Struct
from pydantic import AfterValidator, Field, SecretStr, model_validator

from router.errors import mistake
from router.outcomes.judge import Judge
from router.outcomes.verifiers import (
    CheckModel,
    Empty,
    Exact,
    JsonSchema,
    Milliseconds,
    Number,
    Refusal,
    Regex,
    ToolCallValid,
    Truncated,
    VerifierBase,
)
from router.types.target import Model, Provider, Target, Terms, Wire
from router.types.yaml_model import form

# HTTP verifier: a service of the operator's that says whether the answer is right.

_ADDRESS: Any = re2.compile(r"https?://[^\s/?#@]+(/[^\s#]*)?")


def _valid_address(url: str) -> str:
    try:
        valid = _ADDRESS.fullmatch(url) is not None and url.isascii() and urlsplit(url).port != 0
    except ValueError:
        valid = False
    if not valid:
        raise mistake("a web address", "write it like http://127.0.0.1:8000/verify, without user, blanks or #")
    return url


def _valid_date(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"the calendar has no {text}: write a day like 2027-01-01") from None
    return text


Url = Annotated[str, AfterValidator(_valid_address)]
Date = Annotated[str, form("date"), AfterValidator(_valid_date)]


class VerifierTerms(CheckModel):
    """What the verifier's operator guarantees, in a target's terms; what is left out is not promised."""

    training: bool | None = Field(None, description="It may train on what it is told.")
    retention_days: Annotated[int, Field(ge=0)] | None = Field(None, description="How long that is kept.")
    baa: bool = Field(False, description="A business associate agreement covers it.")
    evidence: str = Field("", description="The contract or page that says so.")
    expires: Date | None = Field(None, description="From this day on (UTC) it is told nothing.")

    @model_validator(mode="after")
    def _check_evidence(self) -> Self:
        promises = self.training is False or self.retention_days is not None or self.baa
        if promises and not self.evidence:
            raise mistake("vouched for", 'add evidence: "the contract that says so"')
        return self

    def terms(self) -> Terms:
        expires = None if self.expires is None else datetime.fromisoformat(self.expires).replace(tzinfo=UTC)
        return Terms(
            training=self.training,
            retention_days=self.retention_days,
            baa=self.baa,
            evidence=self.evidence,
            expires_ms=None if expires is None else int(expires.timestamp() * 1000),
        )


class HttpVerifier(VerifierBase):
    """Is sent `{answer, expected, request_id, target}` by POST; replies `{"score": 0 … 1}` or `{"passed": true}`."""

    kind: Literal["http"]
    url: Url = Field(description="Where it listens.")
    timeout_ms: Milliseconds = 2_000
    api_key: SecretStr | None = Field(None, description='Sent as a bearer token; a reference: "${VERIFIER_KEY}".')
    with_request: bool = Field(False, description="It is told the request's body as well.")
    local: bool = Field(False, description="It runs on machines of yours: nothing leaves.")
    region: str = Field("", description="Where it runs, in the words that classes use.")
    jurisdiction: str = Field("", description="ISO 3166 code of the country of its operator.")
    terms: VerifierTerms = VerifierTerms()

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        key = self.api_key.get_secret_value() if self.api_key else ""
        if any(not "!" <= character <= "~" for character in key):
            raise mistake("reachable with its key", "set api_key without blanks and line breaks")
        if self.local and self.terms != VerifierTerms():
            raise mistake("either local or bound by terms", "remove terms: a local verifier needs none")
        return self

    @cached_property
    def target(self) -> Target:
        """The verifier as a target, as the egress filter sees it."""
        url_parts = urlsplit(self.url)
        base = f"{url_parts.scheme}://{url_parts.netloc}"
        name, wire = f"verifier.{self.name}", Wire.OPENAI_COMPATIBLE
        model = Model(id=self.name, name=self.name, context=0, max_output=0, capabilities=frozenset())
        provider = Provider(id=name, wire=wire, base_url=base, jurisdiction=self.jurisdiction, local=self.local)
        terms = self.terms.terms()
        return Target(id=name, model=model, provider=provider, base_url=base, region=self.region, terms=terms)

    @property
    def path(self) -> str:
        parts = urlsplit(self.url)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


# Python verifier: a function of the operator's, run in a process of its own.

_MODULE_AND_FUNCTION: Any = re2.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _importable_function(function: str) -> str:
    """Checks that the function's package exists, without importing it, since that would run its code here."""
    if _MODULE_AND_FUNCTION.fullmatch(function) is None:
        raise mistake("a function of a module", 'write it like "my_checks.answers:is_right"')
    package = function.partition(":")[0].partition(".")[0]
    if PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None and package not in sys.builtin_module_names:
        remedy = f"install {package} beside lowpass, or put its folder on PYTHONPATH"
        raise mistake("a function that can be imported", remedy)
    return function


Function = Annotated[str, AfterValidator(_importable_function)]


class PythonVerifier(VerifierBase):
    """Calls `function(answer: dict, request: dict) -> bool | float | None`, which may hang, crash or fill memory."""

    kind: Literal["python"]
    function: Function = Field(description='"module:function".')
    timeout_ms: Milliseconds = 2_000
    memory_mb: Annotated[int, Field(ge=64, le=65_536)] = Field(1_024, description="Of its address space.")
    processes: Annotated[int, Field(ge=1, le=16)] = Field(1, description="How many answers are looked at side by side.")


# The verifiers of a policy: a new one is a class and a name in this union.

Verifier = Annotated[
    JsonSchema | ToolCallValid | Regex | Number | Exact | Refusal | Empty | Truncated | HttpVerifier | PythonVerifier,
    Field(discriminator="kind"),
]


# Mistakes that only the verifiers, the judge and the targets of a route together show.


class VerifierMistake(Struct, frozen=True):
    """A mistake in a route's checks. `path`: keys and indexes from the route down to the value."""

    path: tuple[str | int, ...]
    problem: str
    remedy: str


def mistakes(verifiers: Sequence[Verifier], judge: Judge | None, targets: Sequence[str]) -> Iterator[VerifierMistake]:
    """Yields the mistakes of a route's checks. `targets`: the route's own."""
    index_by_name: dict[str, int] = {}
    for index, verifier in enumerate(verifiers):
        if verifier.name in index_by_name:
            problem = f"two verifiers are named '{verifier.name}': their scores could not be told apart"
            yield VerifierMistake(("verifiers", index), problem, "give one of them a label")
        index_by_name[verifier.name] = index
    if judge is not None and set(targets) <= {judge.target}:
        problem = f"{judge.target} would only judge its own answers, and those are not judged"
        yield VerifierMistake(("judge", "target"), problem, "name another target")
