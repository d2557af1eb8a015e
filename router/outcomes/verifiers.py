"""Verifiers that judge from the request and its answer alone."""

import unicodedata
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from decimal import Decimal, DivisionByZero, InvalidOperation
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import msgspec
import re2
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from router.errors import mistake
from router.types.attempt import AnswerChoice, ToolCall
from router.types.request import Request
from router.types.tables import table

# What all verifiers of a policy have: a label, and whether a pass decides that the answer is right.

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=64)]
"""Label of a verifier in ledger rows and metrics."""
Milliseconds = Annotated[int, Field(gt=0, le=60_000)]


class AnswerShape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)


class VerifierPart(AnswerShape):
    """Base of all verifiers; subclasses define `kind`."""

    label: Label | None = Field(None, description="Its name in rows and metrics; else its kind.")
    decides: bool = Field(True, description="Its yes means that the answer is right; else only that nothing is wrong.")

    @property
    def name(self) -> str:
        return self.label or str(getattr(self, "kind", ""))


# What verifiers read of a request: fields of its body in chat's format, whatever its endpoint.

EXPECTED = "expected"
"""Key in `metadata` under which a client states the right answer."""


def field(request: Request, name: str) -> Any:
    """Returns a decoded field of the body; None if it is missing or can't be decoded."""
    raw = None if request.chat is None else request.chat.get(name)
    if raw is None:
        raw = request.body.get(name)
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def expected(request: Request) -> tuple[str, ...]:
    """Returns the accepted answers: `metadata.expected` is a text, a number, or a list of these."""
    metadata = field(request, "metadata")
    value = metadata.get(EXPECTED) if isinstance(metadata, dict) else None
    values = value if isinstance(value, list) else [value]
    return tuple(str(right) for right in values if isinstance(right, str | int | float) and not isinstance(right, bool))


def calls_only(answer: AnswerChoice) -> bool:
    """Returns whether the answer only calls tools, so that there is no text to judge yet."""
    return bool(answer.tool_calls) and not answer.text.strip()


# JSON Schema over model output. Schemas come from clients and may not terminate: run `holds` in a child process.

BACKTRACK = 100_000
"""Maximum number of backtracking steps per `pattern`."""


class SchemaClaim(Struct, frozen=True):
    """A JSON schema, and a JSON value that must be valid under it."""

    schema: str
    value: str


class WrongSchema(ValueError):
    """Raised for an invalid schema or an external reference. Names the place, never its content."""


def holds(claims: Sequence[SchemaClaim]) -> bool:
    """Returns whether all values are valid. Raises `WrongSchema` and `msgspec.DecodeError`."""
    return all(validator(claim.schema).is_valid(msgspec.json.decode(claim.value)) for claim in claims)


def child(rows: object) -> bool:
    """Calls `holds` on decoded JSON, in a child process."""
    return holds(msgspec.convert(rows, list[SchemaClaim]))


@lru_cache(maxsize=256)
def validator(schema: str) -> Any:
    """Compiles a schema; references are never fetched. Imports the library here, since gateways rarely need it."""
    import jsonschema_rs

    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK)
    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), pattern_options=options, retriever=_refused)
    except jsonschema_rs.ValidationError as error:
        raise WrongSchema("/".join(map(str, error.instance_path)) or "its top") from None
    except ValueError:
        raise WrongSchema("a reference") from None


def _refused(uri: str) -> Any:
    raise ValueError("not fetched")


# Whether there is an answer at all.


class Empty(VerifierPart):
    """Fails blank answers; tool calls and refusals count as answers."""

    kind: Literal["empty"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only there.")

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        return float(bool(answer.text.strip() or answer.tool_calls or answer.refusal))


# Whether the last number of an answer is the one that the client expects.

MOST_CHARS = 20_000
"""Maximum characters searched, from the end of the answer."""
_BOXED: Any = re2.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_MARKED: Any = re2.compile(r"####\s*([^\n]+)")
_FRACTION: Any = re2.compile(r"\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}")
_MARK = r"[,.'\x{2019}\x{00a0}\x{202f}]"
"""Separators between groups of three digits in some country."""
_GROUPS = rf"[-+]?\d{{1,3}}({_MARK})\d{{3}}(?:{_MARK}\d{{3}})*([.,]\d+)?"
_LONGEST: Any = re2.Options()
_LONGEST.longest_match = True
_NUMBER: Any = re2.compile(
    rf"[-+]?(?:\d{{1,3}}(?:{_MARK}\d{{3}})+(?:[.,]\d+)?|\d*[.,]\d+|\d+)(?:[eE][-+]?\d{{1,3}})?(?:\s*/\s*\d+)?", _LONGEST
)
_GROUPED: Any = re2.compile(_GROUPS)
_SIGNS = str.maketrans({"\u2212": "-", "\uff0d": "-", "\u066b": ".", "\u066c": ","})
_DIGITS = str.maketrans(
    {chr(zero + value): str(value) for zero in (0x660, 0x6F0, 0x966, 0xFF10) for value in range(10)}
)
"""Maps Arabic, Persian, Devanagari and full-width digits to ASCII."""


class Number(VerifierPart):
    """Compares the answer's last number with the request's `metadata.expected`; without one it does not apply."""

    kind: Literal["number"]
    tolerance: Annotated[Decimal, Field(ge=0)] = Field(Decimal("1e-6"), description="By how much it may differ.")
    relative: Annotated[Decimal, Field(ge=0, lt=1)] = Field(
        Decimal("1e-6"), description="Or by which share of what is expected."
    )

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        right = [value for text in expected(request) for value in _meant(text.strip())]
        if not right or calls_only(answer):
            return None
        pairs = ((given, value) for given in last(answer.text) for value in right)
        return float(
            any(abs(given - value) <= max(self.tolerance, self.relative * abs(value)) for given, value in pairs)
        )


def boxed(text: str) -> list[str]:
    """Returns the contents of each \\boxed{…}."""
    return [match[1] for match in _BOXED.finditer(text[-MOST_CHARS:])]


def last(text: str) -> set[Decimal]:
    """Returns the readings of the number in the last box, else after the last ####, else of the last number."""
    end = text[-MOST_CHARS:]
    for marked in (boxed(end), [match[1] for match in _MARKED.finditer(end)]):
        if marked:
            end = marked[-1]
            break
    numbers = list(_NUMBER.finditer(_plain(end)))
    return readings(numbers[-1][0]) if numbers else set()


def readings(text: str) -> set[Decimal]:
    """Returns the values that a number may have, since 1.234 may also be 1,234; empty if it is none."""
    number = _plain(text).strip().strip("$€£¥%").strip()
    whole = _NUMBER.fullmatch(number)
    return set(_values(number)) if whole else set()


def _meant(text: str) -> set[Decimal]:
    """Returns the values of an expected number: just one for a plain number."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return readings(text)
    return {value} if value.is_finite() else set()


def _plain(text: str) -> str:
    return str(_FRACTION.sub(r"\1/\2", text.translate(_SIGNS).translate(_DIGITS)))


def _values(number: str) -> Iterator[Decimal]:
    above, _, below = number.partition("/")
    for written in _written(above.strip()):
        try:
            value = Decimal(written) / Decimal(below.strip() or 1)
        except (InvalidOperation, DivisionByZero):
            continue
        if value.is_finite():
            yield value


def _written(number: str) -> Iterator[str]:
    yield number.replace(",", ".") if number.count(",") + number.count(".") == 1 else number
    match = _GROUPED.fullmatch(number)
    if match is not None:
        mark, fraction = match[1], match[2] or ""
        whole = number[: len(number) - len(fraction)].replace(mark, "")
        yield whole + fraction.replace(",", ".")


# Whether the answer equals the expected one, apart from case, blanks and surrounding punctuation.

_AROUND = " \t\r\n.,;:!?\"'`´“”„‘’«»()[]{}*_#$。，！？、；：「」『』"


class Exact(VerifierPart):
    """Compares the answer with the request's `metadata.expected`; without that it does not apply."""

    kind: Literal["exact"]

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        right = set(map(normalised, expected(request)))
        if not right or calls_only(answer):
            return None
        return float(not right.isdisjoint((normalised(answer.text), *map(normalised, boxed(answer.text)[-1:]))))


def normalised(text: str) -> str:
    """Applies NFKC, ignores case, joins blanks and strips punctuation at both ends."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_AROUND)


# Whether the answer matches an expression, or does not.

_QUIET: Any = re2.Options()
_QUIET.log_errors = False


def _compiles(expression: str) -> str:
    try:
        re2.compile(expression, _QUIET)
    except re2.error as error:
        problem = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
        remedy = f"{problem}; it has no look-around and no backreferences"
        raise mistake("a regular expression in RE2's syntax", remedy) from None
    return expression


Expression = Annotated[str, AfterValidator(_compiles), Field(min_length=1)]


class Regex(VerifierPart):
    """Matches case-sensitively; begin an expression with (?i) to ignore case, with (?s) for . to match line breaks."""

    kind: Literal["regex"]
    must: Expression | None = Field(None, description="An RE2 expression that the answer's text must match somewhere.")
    must_not: Expression | None = Field(None, description="One that it must match nowhere.")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.must is None and self.must_not is None:
            raise mistake("a verifier with something to look for", "add must: or must_not: with an expression")
        return self

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        if calls_only(answer):
            return None
        # re2 caches compiled expressions.
        if self.must is not None and re2.compile(self.must, _QUIET).search(answer.text) is None:
            return 0.0
        return float(self.must_not is None or re2.compile(self.must_not, _QUIET).search(answer.text) is None)


# Whether the answer was cut off.


class Truncated(VerifierPart):
    """Fails answers that reached their length limit, or that thinking left empty."""

    kind: Literal["truncated"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only whole.")

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        visible = bool(answer.text.strip() or answer.tool_calls or answer.refusal)
        return float(visible and answer.finish_reason != "length")


# Whether the model refuses to answer.

OPENING = 240
"""Number of characters at the start of an answer in which a refusal is looked for."""
_FILTERED = "content_filter"
_OPTIONS: Any = re2.Options()
_OPTIONS.case_sensitive = False
_OPTIONS.dot_nl = True
_OPTIONS.max_mem = 64 << 20
_SAID = [pattern for language in table("outcomes/refusals.yaml").values() for pattern in language]
_REFUSES: Any = re2.compile("|".join(f"(?:{pattern})" for pattern in _SAID), _OPTIONS)
_QUOTES = str.maketrans("’‘ʼ", "'''")


class Refusal(VerifierPart):
    """Fails refusals: by the API's own field, the provider's filter, or opening words in some thirty languages."""

    kind: Literal["refusal"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only that there is one.")

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        if answer.refusal or answer.finish_reason == _FILTERED:
            return 0.0
        return None if calls_only(answer) else float(not refuses(answer.text))


def refuses(text: str) -> bool:
    return _REFUSES.search(text.lstrip()[:OPENING].translate(_QUOTES)) is not None


# Whether the answer is JSON of the requested form.

_AN_OBJECT = '{"type":"object"}'


def _valid(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        validator(_json(schema))
    except WrongSchema as error:
        raise mistake("a JSON Schema", f"correct it at {error}; everything that it refers to must be in it") from None
    return schema


def _json(schema: Any) -> str:
    """Encodes a schema; a policy's fractional numbers are decimals."""
    return msgspec.json.encode(schema, enc_hook=float).decode()


class SchemaPart(VerifierPart):
    """A verifier that checks whether values are valid under schemas."""

    @abstractmethod
    def claims(self, request: Request, answer: AnswerChoice) -> tuple[SchemaClaim, ...] | float | None:
        """Returns what must be valid to pass; or the score if it is known without a check."""

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        """Returns the score. With a client's schema, call it only in a process that may hang."""
        claims = self.claims(request, answer)
        return float(holds(claims)) if isinstance(claims, tuple) else claims


class JsonSchema(SchemaPart):
    """Checks JSON against the request's `response_format` or the policy's schema; without one it does not apply."""

    kind: Literal["json_schema"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only well-formed.")
    schema_: Annotated[dict[str, Any], AfterValidator(_valid)] | None = Field(
        None, alias="schema", description="In the place of the request's own."
    )

    def claims(self, request: Request, answer: AnswerChoice) -> tuple[SchemaClaim, ...] | float | None:
        schema = _asked_for(request) if self.schema_ is None else _json(self.schema_)
        if schema is None or calls_only(answer):
            return None
        try:
            msgspec.json.decode(answer.text)
        except msgspec.DecodeError:
            return 0.0
        return (SchemaClaim(schema, answer.text),)


def _asked_for(request: Request) -> str | None:
    form = field(request, "response_format")
    if not isinstance(form, dict):
        return None
    if form.get("type") == "json_object":
        return _AN_OBJECT
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    return None if schema is None else _json(schema)


# Whether the called tools exist and their arguments are valid.

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class ToolCallValid(SchemaPart):
    """Checks tool calls against the declared tools. An answer without calls fails only if the request demands one."""

    kind: Literal["tool_call"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only well-formed.")

    def claims(self, request: Request, answer: AnswerChoice) -> tuple[SchemaClaim, ...] | float | None:
        demanded = _demanded(request)
        if not answer.tool_calls:
            return None if demanded is None else 0.0
        tools = dict(_declared(field(request, "tools"))) | dict(_declared(field(request, "functions")))
        claims = []
        for call in answer.tool_calls:
            if call.name not in tools or (demanded and call.name != demanded):
                return 0.0
            if tools[call.name] is not None:
                claim = _claim(call, tools[call.name])
                if claim is None:
                    return 0.0
                claims.append(claim)
        return tuple(claims)


def _demanded(request: Request) -> str | None:
    """Returns the tool that must be called; empty if any; None if none must be."""
    choice = field(request, "tool_choice")
    if choice == "required":
        return ""
    named = choice.get("function") if isinstance(choice, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    return name if isinstance(name, str) else None


def _declared(tools: Any) -> Iterator[tuple[str, Any]]:
    """Yields tool names and argument schemas (None for any text), also of the older `functions`."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            kind, inner = tool.get("type", "function"), tool.get("function") or tool.get("custom")
            # The Responses API has all fields in one object.
            named: dict[str, Any] = inner if isinstance(inner, dict) else tool
            if isinstance(named.get("name"), str):
                parameters = named.get("parameters")
                anything = _ANY_OBJECT if parameters is None else parameters
                yield named["name"], None if kind == "custom" else anything


def _claim(call: ToolCall, schema: Any) -> SchemaClaim | None:
    """Returns the claim that the arguments fit `schema`; None if they are no JSON object. Empty ones count as {}."""
    arguments = call.arguments.strip() or "{}"
    try:
        if not isinstance(msgspec.json.decode(arguments), dict):
            return None
    except msgspec.DecodeError:
        return None
    return SchemaClaim(msgspec.json.encode(schema).decode(), arguments)
