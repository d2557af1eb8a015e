"""The policy file as Pydantic models, and the `Config` made of it."""

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Literal, Protocol
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from router.budget.budget import Budget
from router.budget.loops import Loops
from router.classify.sensitivity import Detector
from router.decide.eligibility import Requirements, Usd
from router.decide.in_force import PolicyInForce, in_force
from router.decide.strategies import Strategy
from router.decide.weigh import Exploration
from router.outcomes.checks import Date, Verifier
from router.outcomes.judge import Judge
from router.types.decision import NO_STAKES, Objective, stakes
from router.types.price import HOURS, RATES, Price, priced
from router.types.request import Modality
from router.types.target import AbandonedAnswer, Benchmark, Capability, Contract, Licence, Model, Provider, Target, Task
from router.types.yaml_model import YamlPart, form

# A price in a policy file.

Rate = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=9)]
"""USD per million tokens, or per unit in `each`."""
Hours = Annotated[str, StringConstraints(pattern=HOURS)]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

_EFFECTS = frozenset({*RATES, "each", "times"})


class _RatesRow(YamlPart):
    """Optional rates: tokens without one are charged at the rate of a related kind (docs/policy.md), never as free."""

    cache_read: Rate | None = None
    cache_read_explicit: Rate | None = None
    cache_read_audio: Rate | None = None
    cache_write: Rate | None = None
    cache_write_1h: Rate | None = None
    cache_write_12h: Rate | None = None
    reasoning: Rate | None = None
    input_audio: Rate | None = None
    input_image: Rate | None = None
    input_video: Rate | None = None
    output_audio: Rate | None = None
    output_image: Rate | None = None
    output_video: Rate | None = None
    each: dict[str, Rate] | None = Field(None, description="USD for one of what is not counted in tokens.")


class PriceRule(_RatesRow):
    """Changes the price of some calls: all conditions must hold; later rules win."""

    above: int | None = Field(None, gt=0, description="More input tokens than this; reprices the whole request.")
    service_tier: str | None = Field(None, min_length=1)
    region: str | None = Field(None, min_length=1, description="Where it was served.")
    since: Date | None = Field(None, description="From this day on (UTC).")
    until: Date | None = Field(None, description="Before this day (UTC).")
    hours: tuple[Hours, ...] | None = Field(None, min_length=1, description='"22:30-06:00"; equal ends: the whole day.')
    days: tuple[Day, ...] | None = Field(None, min_length=1, description="On which the hours begin.")
    zone: str | None = Field(None, description="Of hours and days; UTC.")
    input: Rate | None = None
    output: Rate | None = None
    times: Annotated[Decimal, Field(gt=0, le=1000)] | None = Field(None, description="Scales every token rate.")

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, name: str | None) -> str | None:
        try:
            ZoneInfo(name or "UTC")
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"there is no time zone '{name}': write one such as Europe/Berlin") from None
        return name

    @model_validator(mode="after")
    def _does_something(self) -> "PriceRule":
        given = self.model_fields_set
        if not given & _EFFECTS:
            raise ValueError("the rule changes no price: state a rate, each or times")
        if not given - _EFFECTS - {"zone"}:
            raise ValueError("the rule has no condition: add above, service_tier, region, since, until, hours or days")
        return self


class PriceRow(_RatesRow):
    """Price of a model, in USD per million tokens."""

    input: Rate
    output: Rate
    rules: tuple[PriceRule, ...] = ()

    def price(self, version: str, *, assumed: bool = False) -> Price:
        return priced(self.model_dump(exclude_none=True), version, assumed=assumed)


# The schema of a policy file. check.py and sensitivity.py check what its names refer to.


def _address(url: str) -> str:
    try:
        valid = urlsplit(url).port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("no such address: write host and port like http://gpu1:8000/v1 or http://[::1]:8000/v1")
    return url


Name = Annotated[str, form("name"), StringConstraints(max_length=128)]
"""Name of a target, route or class; appears in headers, URLs and reports."""
Tokens = Annotated[int, Field(gt=0)]
Milliseconds = Annotated[int, Field(gt=0)]
Language = Annotated[str, form("language")]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Url = Annotated[str, form("url"), AfterValidator(_address)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=128, strip_whitespace=True)]
HeaderName = Annotated[str, form("header_name")]
HeaderValue = Annotated[str, form("header_value")]


class ThinkingRow(YamlPart):
    """How a model thinks: `levels` from least to most; `tokens`: typical tokens (p90) of each level."""

    contract: Contract
    levels: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    minimum: int = 0
    streamed: bool = Field(False, description="A stream shows the thoughts as they come: they can be metered.")


class ModelRow(YamlPart):
    """A model that the catalog does not have, or that differs from the catalog's."""

    name: Annotated[str, StringConstraints(min_length=1)] = Field(description="What the provider calls it.")
    provider: str = Field(description="A provider of the catalog.")
    context: Tokens = Field(description="Tokens of input and output together.")
    max_output: Tokens
    capabilities: tuple[Capability, ...] = Field(min_length=1)
    price: PriceRow | None = None
    thinking: ThinkingRow | None = None
    licence: str = "proprietary"
    parameters_b: float | None = Field(None, gt=0, description="Billions of parameters.")
    active_b: float | None = Field(None, gt=0, description="Billions of parameters used per token.")
    scores: dict[Benchmark, Annotated[float, Field(ge=0, le=1)]] = Field(
        {}, description="Shares of public benchmarks' questions that it answers right."
    )


class TimeoutsRow(YamlPart):
    connect_ms: Milliseconds | None = None
    first_ms: Milliseconds | None = Field(None, description="Until the first byte of the answer's body.")
    between_ms: Milliseconds | None = Field(None, description="Between two parts of a stream.")
    total_ms: Milliseconds | None = None


class TermsRow(YamlPart):
    """What the provider promises this target beyond its general terms; keys left out are as in the catalog."""

    training: bool | None = Field(None, description="The provider may train on inputs.")
    retention_days: int | None = Field(None, ge=0, description="How long inputs are kept, abuse logs included.")
    baa: bool | None = Field(None, description="A business associate agreement covers it.")
    evidence: str | None = Field(None, min_length=1, description="The contract or page that says so.")
    expires: Date | None = Field(None, description="From this day on (UTC) the target serves no request.")
    verify: Annotated[str, form("verify")] | None = Field(
        None, description='Where an answer states its region: "usage.NAME" or "header:NAME".'
    )


def _form(value: object) -> str:
    return "word" if isinstance(value, str) else "inline"


class PromptRow(YamlPart):
    template: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="Jinja over `messages`, `system`, `input`, `text`, `source`, `target` and their codes."
    )
    stop: tuple[str, ...] = Field((), description="Where its answer ends.")


class TargetRow(YamlPart):
    """A target: a model at one effort, at one place."""

    model: Annotated[Annotated[str, Tag("word")] | Annotated[ModelRow, Tag("inline")], Discriminator(_form)] = Field(
        description="The id of a catalog model, or a model written out."
    )
    effort: str | None = Field(None, description="One of the model's thinking levels.")
    engine: str | None = Field(None, description="A local engine that `lowpass serve` launches.")
    base_url: Url | None = None
    api_key: SecretStr | None = Field(None, description='A reference: "${OPENAI_API_KEY}".')
    region: str = Field("", description="Where the data is processed, in the words that classes use.")
    terms: TermsRow = TermsRow()
    headers: dict[HeaderName, HeaderValue] = Field({})
    timeouts: TimeoutsRow = TimeoutsRow()
    retries: int = Field(1, ge=0, le=10, description="Further tries at this target.")
    max_event_bytes: int = Field(1_048_576, ge=4_096, le=67_108_864, description="Bytes of one event of its streams.")
    strict: Literal["drop", "reject"] = Field("drop", description="What is done with fields that its wire lacks.")
    hourly_usd: Usd | None = Field(None, description="What its machine costs: estimates divide it by its throughput.")
    adapter: str | None = Field(None, min_length=1, description="A LoRA adapter of its engine, in place of the model.")
    max_wait_ms: Milliseconds | None = Field(None, description="With a longer queue, others are asked before it.")
    tasks: tuple[Task, ...] = Field((), description="What it is for, and nothing else; empty: anything.")
    languages: tuple[Language, ...] = Field((), description="ISO 639-1 codes that it can read and write; empty: any.")
    pass_rate: Share | None = Field(None, description="Share of requests of its tasks that it answers right.")
    prompt: PromptRow | None = Field(None, description="How a model that only completes texts is asked.")
    abandoned: AbandonedAnswer | None = Field(
        None, description="Whether an answer that its client left is read to its end."
    )


class RouteRow(YamlPart):
    """A route: its strategy, and what is at stake. Classes and requests may state the latter too."""

    strategy: Strategy
    failure_cost_usd: Usd | None = Field(None, description="What a wrong answer costs its user.")
    min_pass_rate: Share | None = Field(None, description="Targets less likely to be right are not chosen.")
    max_cost_usd: Usd | None = Field(None, description="What one answer may cost at most.")
    deadline_ms: Milliseconds | None = Field(None, description="Within which an answer is worth something.")
    exploration: Exploration = Exploration()
    verifiers: tuple[Verifier, ...] = Field((), description="What says whether an answer is right.")
    judge: Judge | None = None

    def stakes(self) -> Objective:
        return stakes(self.failure_cost_usd, self.min_pass_rate, self.max_cost_usd, self.deadline_ms)


class Unscannable(YamlPart):
    """Class of content that can't be scanned, by its kind; the default class where none is named."""

    image: str | None = None
    audio: str | None = None
    file: str | None = Field(None, description="Documents that aren't text, or are linked or stored elsewhere.")
    tokens: str | None = Field(None, description="Text as numbers of a tokenizer.")


class Sensitivity(YamlPart):
    """Sensitivity classes and detectors. Every request has the class `default`, in addition to any others."""

    default: str = "internal"
    classes: dict[Name, Requirements] = Field(
        {"internal": Requirements()}, description="By rank, or else from least to most sensitive."
    )
    detectors: tuple[Detector, ...] = ()
    unscannable: Unscannable = Unscannable()

    @field_validator("classes")
    @classmethod
    def _in_order(cls, classes: dict[str, Requirements]) -> dict[str, Requirements]:
        """Sorts the classes by rank; without ranks, or at equal rank, the file's order counts."""
        return dict(sorted(classes.items(), key=lambda item: item[1].rank or 0))

    def ranks(self) -> dict[str, int]:
        """Returns each class's position, from 0 for the least sensitive; no two are equal."""
        return {name: place for place, name in enumerate(self.classes)}

    def unread(self, modality: Modality) -> str:
        """Returns the class of content of this kind, which can't be scanned."""
        return getattr(self.unscannable, modality) or self.default

    def redacted_to(self, name: str) -> str:
        """Returns the class that replaces class `name` once its findings are redacted."""
        return self.classes[name].redacted_to or self.default


class Policy(YamlPart):
    """A policy file of lowpass. Every key has a default so that a file with mistakes can be checked part by part."""

    model_config = ConfigDict(title="lowpass policy", json_schema_extra={"required": ["version", "targets", "routes"]})
    version: Literal[1] = 1
    targets: dict[Name, TargetRow] = Field({})
    routes: dict[Name, RouteRow] = Field({})
    aliases: dict[ModelName, Name] = Field(
        {}, description="Names that clients send as their model, with * for any characters, and the route of each."
    )
    sensitivity: Sensitivity = Sensitivity()
    budgets: tuple[Budget, ...] = ()
    unpriced: Annotated[
        Annotated[Literal["refuse"], Tag("word")] | Annotated[PriceRow, Tag("inline")], Discriminator(_form)
    ] = Field("refuse", description="What a model without a price is charged at; USD per million tokens.")
    budget_status: Literal[402, 429] = 402
    loops: Loops = Loops()
    browsers: tuple[Annotated[str, form("origin")], ...] = Field(
        (), description="Sites whose pages may call the gateway from a browser (CORS)."
    )


# The frozen configuration made of a policy file.


class Catalog(Protocol):
    """The catalog's models and providers. A model's id starts with the id of its provider, or with `local`."""

    @property
    def providers(self) -> Mapping[str, Provider]: ...
    @property
    def licences(self) -> Mapping[str, Licence]: ...
    @property
    def models(self) -> Mapping[str, tuple[Model, str]]:
        """Model id → (card, id of the provider that serves the model)."""
        ...


class Route(Struct, frozen=True):
    name: str
    strategy: Strategy
    stakes: Objective = NO_STAKES
    exploration: Exploration = Exploration()
    verifiers: tuple[Verifier, ...] = ()
    judge: Judge | None = None


class Config(Struct, frozen=True, kw_only=True, dict=True):
    """A valid policy. `hash`: first 16 hex digits of the file's SHA-256. Targets and routes keep the file's order."""

    path: str
    hash: str
    targets: Mapping[str, Target]
    routes: Mapping[str, Route]
    sensitivity: Sensitivity
    budgets: tuple[Budget, ...]
    budget_status: Literal[402, 429]
    aliases: Mapping[str, str] = {}
    """Patterns of model names → route or target; the first pattern that matches counts."""
    loops: Loops = Loops()
    browsers: tuple[str, ...] = ()

    @cached_property
    def in_force(self) -> PolicyInForce:
        """Classes, targets and budgets as a document for the ledger, without webhook URLs, which may hold secrets."""
        budgets = [budget.model_dump(mode="json", exclude_unset=True, exclude={"webhook"}) for budget in self.budgets]
        demands = self.sensitivity
        return in_force(self.hash, demands.default, demands.classes, self.targets, budgets)
