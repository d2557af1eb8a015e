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


class CheckModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)


class VerifierBase(CheckModel):
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
    accepted = metadata.get(EXPECTED) if isinstance(metadata, dict) else None
    listed = accepted if isinstance(accepted, list) else [accepted]
    return tuple(str(item) for item in listed if isinstance(item, str | int | float) and not isinstance(item, bool))


def only_calls_tools(answer: AnswerChoice) -> bool:
    """Returns whether the answer only calls tools, so that there is no text to judge yet."""
    return bool(answer.tool_calls) and not answer.text.strip()


# JSON Schema over model output. Schemas come from clients and may not terminate: run `all_valid` in a child process.

MOST_BACKTRACKING = 100_000
"""Maximum number of backtracking steps per `pattern`."""


class SchemaClaim(Struct, frozen=True):
    """A JSON schema, and a JSON value that must be valid under it."""

    schema: str
    value: str


class InvalidSchema(ValueError):
    """Raised for an invalid schema or an external reference. Names the place, never its content."""


def all_valid(claims: Sequence[SchemaClaim]) -> bool:
    """Returns whether all values are valid. Raises `InvalidSchema` and `msgspec.DecodeError`."""
    return all(validator(claim.schema).is_valid(msgspec.json.decode(claim.value)) for claim in claims)


def child(rows: object) -> bool:
    """Calls `all_valid` on decoded JSON, in a child process."""
    return all_valid(msgspec.convert(rows, list[SchemaClaim]))


@lru_cache(maxsize=256)
def validator(schema: str) -> Any:
    """Compiles a schema; references are never fetched. Imports the library here, since gateways rarely need it."""
    import jsonschema_rs

    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=MOST_BACKTRACKING)
    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), pattern_options=options, retriever=_deny_fetch)
    except jsonschema_rs.ValidationError as error:
        raise InvalidSchema("/".join(map(str, error.instance_path)) or "its top") from None
    except ValueError:
        raise InvalidSchema("a reference") from None


def _deny_fetch(uri: str) -> Any:
    raise ValueError("not fetched")


# Whether there is an answer at all.


class Empty(VerifierBase):
    """Fails blank answers; tool calls and refusals count as answers."""

    kind: Literal["empty"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only there.")

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        return float(bool(answer.text.strip() or answer.tool_calls or answer.refusal))


# Whether the last number of an answer is the one that the client expects.

MOST_SEARCHED = 20_000
"""Maximum characters searched, from the end of the answer."""
_BOXED: Any = re2.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_AFTER_HASHES: Any = re2.compile(r"####\s*([^\n]+)")
_FRACTION: Any = re2.compile(r"\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}")
_MARK = r"[,.'\x{2019}\x{00a0}\x{202f}]"
"""Separators between groups of three digits in some country."""
_GROUPED_NUMBER = rf"[-+]?\d{{1,3}}({_MARK})\d{{3}}(?:{_MARK}\d{{3}})*([.,]\d+)?"
_LONGEST: Any = re2.Options()
_LONGEST.longest_match = True
_NUMBER: Any = re2.compile(
    rf"[-+]?(?:\d{{1,3}}(?:{_MARK}\d{{3}})+(?:[.,]\d+)?|\d*[.,]\d+|\d+)(?:[eE][-+]?\d{{1,3}})?(?:\s*/\s*\d+)?", _LONGEST
)
_GROUPED: Any = re2.compile(_GROUPED_NUMBER)
_TO_ASCII_SIGNS = str.maketrans({"\u2212": "-", "\uff0d": "-", "\u066b": ".", "\u066c": ","})
_TO_ASCII_DIGITS = str.maketrans(
    {chr(zero + value): str(value) for zero in (0x660, 0x6F0, 0x966, 0xFF10) for value in range(10)}
)
"""Maps Arabic, Persian, Devanagari and full-width digits to ASCII."""


class Number(VerifierBase):
    """Compares the answer's last number with the request's `metadata.expected`; without one it does not apply."""

    kind: Literal["number"]
    tolerance: Annotated[Decimal, Field(ge=0)] = Field(Decimal("1e-6"), description="By how much it may differ.")
    relative: Annotated[Decimal, Field(ge=0, lt=1)] = Field(
        Decimal("1e-6"), description="Or by which share of what is expected."
    )

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        expected_values = [value for text in expected(request) for value in _expected_values(text.strip())]
        if not expected_values or only_calls_tools(answer):
            return None
        pairs = ((given, value) for given in last_numbers(answer.text) for value in expected_values)
        return float(
            any(abs(given - value) <= max(self.tolerance, self.relative * abs(value)) for given, value in pairs)
        )


def boxed(text: str) -> list[str]:
    """Returns the contents of each \\boxed{…}."""
    return [match[1] for match in _BOXED.finditer(text[-MOST_SEARCHED:])]


def last_numbers(text: str) -> set[Decimal]:
    """Returns the readings of the number in the last box, else after the last ####, else of the last number."""
    searched = text[-MOST_SEARCHED:]
    for found in (boxed(searched), [match[1] for match in _AFTER_HASHES.finditer(searched)]):
        if found:
            searched = found[-1]
            break
    numbers = list(_NUMBER.finditer(_in_plain_form(searched)))
    return number_values(numbers[-1][0]) if numbers else set()


def number_values(text: str) -> set[Decimal]:
    """Returns the values that a number may have, since 1.234 may also be 1,234; empty if it is none."""
    number = _in_plain_form(text).strip().strip("$€£¥%").strip()
    is_number = _NUMBER.fullmatch(number)
    return set(_decimal_values(number)) if is_number else set()


def _expected_values(text: str) -> set[Decimal]:
    """Returns the values of an expected number: just one for a plain number."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return number_values(text)
    return {value} if value.is_finite() else set()


def _in_plain_form(text: str) -> str:
    return str(_FRACTION.sub(r"\1/\2", text.translate(_TO_ASCII_SIGNS).translate(_TO_ASCII_DIGITS)))


def _decimal_values(number: str) -> Iterator[Decimal]:
    numerator, _, denominator = number.partition("/")
    for spelling in _spellings(numerator.strip()):
        try:
            value = Decimal(spelling) / Decimal(denominator.strip() or 1)
        except (InvalidOperation, DivisionByZero):
            continue
        if value.is_finite():
            yield value


def _spellings(number: str) -> Iterator[str]:
    yield number.replace(",", ".") if number.count(",") + number.count(".") == 1 else number
    match = _GROUPED.fullmatch(number)
    if match is not None:
        separator, fraction = match[1], match[2] or ""
        integer_part = number[: len(number) - len(fraction)].replace(separator, "")
        yield integer_part + fraction.replace(",", ".")


# Whether the answer equals the expected one, apart from case, blanks and surrounding punctuation.

_STRIPPED = " \t\r\n.,;:!?\"'`´“”„‘’«»()[]{}*_#$。，！？、；：「」『』"


class Exact(VerifierBase):
    """Compares the answer with the request's `metadata.expected`; without that it does not apply."""

    kind: Literal["exact"]

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        wanted = set(map(normalised, expected(request)))
        if not wanted or only_calls_tools(answer):
            return None
        return float(not wanted.isdisjoint((normalised(answer.text), *map(normalised, boxed(answer.text)[-1:]))))


def normalised(text: str) -> str:
    """Applies NFKC, ignores case, joins blanks and strips punctuation at both ends."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_STRIPPED)


# Whether the answer matches an expression, or does not.

_QUIET: Any = re2.Options()
_QUIET.log_errors = False


def _valid_expression(expression: str) -> str:
    try:
        re2.compile(expression, _QUIET)
    except re2.error as error:
        problem = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
        remedy = f"{problem}; it has no look-around and no backreferences"
        raise mistake("a regular expression in RE2's syntax", remedy) from None
    return expression


Expression = Annotated[str, AfterValidator(_valid_expression), Field(min_length=1)]


class Regex(VerifierBase):
    """Matches case-sensitively; begin an expression with (?i) to ignore case, with (?s) for . to match line breaks."""

    kind: Literal["regex"]
    must: Expression | None = Field(None, description="An RE2 expression that the answer's text must match somewhere.")
    must_not: Expression | None = Field(None, description="One that it must match nowhere.")

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        if self.must is None and self.must_not is None:
            raise mistake("a verifier with something to look for", "add must: or must_not: with an expression")
        return self

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        if only_calls_tools(answer):
            return None
        # re2 caches compiled expressions.
        if self.must is not None and re2.compile(self.must, _QUIET).search(answer.text) is None:
            return 0.0
        return float(self.must_not is None or re2.compile(self.must_not, _QUIET).search(answer.text) is None)


# Whether the answer was cut off.


class Truncated(VerifierBase):
    """Fails answers that reached their length limit, or that thinking left empty."""

    kind: Literal["truncated"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only whole.")

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        has_answer = bool(answer.text.strip() or answer.tool_calls or answer.refusal)
        return float(has_answer and answer.finish_reason != "length")


# Whether the model refuses to answer.

OPENING_CHARACTERS = 240
"""Number of characters at the start of an answer in which a refusal is looked for."""
_FILTER_REASON = "content_filter"
_OPTIONS: Any = re2.Options()
_OPTIONS.case_sensitive = False
_OPTIONS.dot_nl = True
_OPTIONS.max_mem = 64 << 20
_REFUSAL_PATTERNS = [pattern for language in table("outcomes/refusals.yaml").values() for pattern in language]
_REFUSES: Any = re2.compile("|".join(f"(?:{pattern})" for pattern in _REFUSAL_PATTERNS), _OPTIONS)
_TO_ASCII_QUOTES = str.maketrans("’‘ʼ", "'''")


class Refusal(VerifierBase):
    """Fails refusals: by the API's own field, the provider's filter, or opening words in some thirty languages."""

    kind: Literal["refusal"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only that there is one.")

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        if answer.refusal or answer.finish_reason == _FILTER_REASON:
            return 0.0
        return None if only_calls_tools(answer) else float(not refuses(answer.text))


def refuses(text: str) -> bool:
    return _REFUSES.search(text.lstrip()[:OPENING_CHARACTERS].translate(_TO_ASCII_QUOTES)) is not None


# Whether the answer is JSON of the requested form.

_OBJECT_SCHEMA = '{"type":"object"}'


def _valid_schema(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        validator(_json(schema))
    except InvalidSchema as error:
        raise mistake("a JSON Schema", f"correct it at {error}; everything that it refers to must be in it") from None
    return schema


def _json(schema: Any) -> str:
    """Encodes a schema; a policy's fractional numbers are decimals."""
    return msgspec.json.encode(schema, enc_hook=float).decode()


class SchemaVerifier(VerifierBase):
    """A verifier that checks whether values are valid under schemas."""

    @abstractmethod
    def claims(self, request: Request, answer: AnswerChoice) -> tuple[SchemaClaim, ...] | float | None:
        """Returns what must be valid to pass; or the score if it is known without a check."""

    def check(self, request: Request, answer: AnswerChoice) -> float | None:
        """Returns the score. With a client's schema, call it only in a process that may hang."""
        claims = self.claims(request, answer)
        return float(all_valid(claims)) if isinstance(claims, tuple) else claims


class JsonSchema(SchemaVerifier):
    """Checks JSON against the request's `response_format` or the policy's schema; without one it does not apply."""

    kind: Literal["json_schema"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only well-formed.")
    schema_: Annotated[dict[str, Any], AfterValidator(_valid_schema)] | None = Field(
        None, alias="schema", description="In the place of the request's own."
    )

    def claims(self, request: Request, answer: AnswerChoice) -> tuple[SchemaClaim, ...] | float | None:
        schema = _requested_schema(request) if self.schema_ is None else _json(self.schema_)
        if schema is None or only_calls_tools(answer):
            return None
        try:
            msgspec.json.decode(answer.text)
        except msgspec.DecodeError:
            return 0.0
        return (SchemaClaim(schema, answer.text),)


def _requested_schema(request: Request) -> str | None:
    response_format = field(request, "response_format")
    if not isinstance(response_format, dict):
        return None
    if response_format.get("type") == "json_object":
        return _OBJECT_SCHEMA
    inner = response_format.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    return None if schema is None else _json(schema)


# Whether the called tools exist and their arguments are valid.

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class ToolCallValid(SchemaVerifier):
    """Checks tool calls against the declared tools. An answer without calls fails only if the request demands one."""

    kind: Literal["tool_call"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only well-formed.")

    def claims(self, request: Request, answer: AnswerChoice) -> tuple[SchemaClaim, ...] | float | None:
        required = _required_tool(request)
        if not answer.tool_calls:
            return None if required is None else 0.0
        tools = dict(_declared_tools(field(request, "tools"))) | dict(_declared_tools(field(request, "functions")))
        claims = []
        for call in answer.tool_calls:
            if call.name not in tools or (required and call.name != required):
                return 0.0
            if tools[call.name] is not None:
                claim = _claim(call, tools[call.name])
                if claim is None:
                    return 0.0
                claims.append(claim)
        return tuple(claims)


def _required_tool(request: Request) -> str | None:
    """Returns the tool that must be called; empty if any; None if none must be."""
    choice = field(request, "tool_choice")
    if choice == "required":
        return ""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _declared_tools(tools: Any) -> Iterator[tuple[str, Any]]:
    """Yields tool names and argument schemas (None for any text), also of the older `functions`."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            kind, inner = tool.get("type", "function"), tool.get("function") or tool.get("custom")
            # The Responses API has all fields in one object.
            function: dict[str, Any] = inner if isinstance(inner, dict) else tool
            if isinstance(function.get("name"), str):
                parameters = function.get("parameters")
                schema = _ANY_OBJECT if parameters is None else parameters
                yield function["name"], None if kind == "custom" else schema


def _claim(call: ToolCall, schema: Any) -> SchemaClaim | None:
    """Returns the claim that the arguments fit `schema`; None if they are no JSON object. Empty ones count as {}."""
    arguments = call.arguments.strip() or "{}"
    try:
        if not isinstance(msgspec.json.decode(arguments), dict):
            return None
    except msgspec.DecodeError:
        return None
    return SchemaClaim(msgspec.json.encode(schema).decode(), arguments)
