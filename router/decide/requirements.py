"""What a sensitivity class demands of the place that its requests go to, and of what may be sent there."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from router.types.stakes import Stakes, stakes

T = TypeVar("T")
N = TypeVar("N", int, Decimal)
M = TypeVar("M", float, Decimal)
Word = Annotated[str, Field(min_length=1)]


_CODES = (
    "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ "
    "CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO "
    "FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE "
    "JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO "
    "MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW "
    "PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM "
    "TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW"
)
COUNTRIES = frozenset(_CODES.split())
"""ISO 3166-1 alpha-2. A code that nobody has would exclude nobody."""


def _country(code: str) -> str:
    if code not in COUNTRIES:
        raise ValueError("there is no such country code: write two capital letters as in ISO 3166, e.g. CN or GB")
    return code


Usd = Annotated[Decimal, Field(gt=0, le=1_000_000, decimal_places=9)]


class Redact(StrEnum):
    """When findings are replaced by placeholders before a request leaves."""

    NEVER = "never"
    NEEDED = "needed"
    """For targets that may not see the class otherwise."""
    REMOTE = "remote"
    """For every target that is not local."""


class Use(StrEnum):
    """What a model's licence may have to permit."""

    COMMERCIAL = "commercial"
    TRAIN_ON_OUTPUTS = "train_on_outputs"


class LicenceDemands(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    uses: tuple[Use, ...] = ()
    users: Annotated[int, Field(gt=0)] | None = Field(None, description="Monthly active users of the product.")

    def joined(self, other: "LicenceDemands") -> "LicenceDemands":
        users = max((count for count in (self.users, other.users) if count is not None), default=None)
        return LicenceDemands(uses=_all(self.uses, other.uses), users=users)


class Requirements(BaseModel):
    """Every given demand must hold. Regions are the policy's own words (a target's `region`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: int | None = Field(None, description="Place in the order; all classes have one, or the file's order counts.")
    block: bool = Field(False, description="Refused, wherever it would go.")
    local_only: bool = False
    regions: tuple[Word, ...] = ()
    jurisdictions_not: tuple[Annotated[str, AfterValidator(_country)], ...] = ()
    providers: tuple[Word, ...] = Field((), description="Only these, and local targets.")
    training: Literal["never"] | None = Field(None, description="The provider must not train on inputs.")
    retention_days_max: Annotated[int, Field(ge=0)] | None = None
    baa: bool = Field(False, description="A business associate agreement must cover the target.")
    licence: LicenceDemands = LicenceDemands()
    redact: Redact = Redact.NEVER
    redacted_to: str | None = Field(None, description="The class that is left once findings are replaced.")
    thinking_cap: Annotated[int, Field(ge=0)] | None = Field(None, description="Thinking tokens of each request.")
    failure_cost_usd: Usd | None = Field(None, description="What a wrong answer costs, in place of the route's.")
    min_pass_rate: Annotated[float, Field(gt=0, lt=1)] | None = Field(None, description="In place of the route's.")
    max_cost_usd: Usd | None = Field(None, description="In place of the route's, where that allows more.")
    deadline_ms: Annotated[int, Field(gt=0)] | None = Field(None, description="In place of the route's.")

    def joined(self, other: "Requirements") -> "Requirements":
        """What both demand. Names that one list leaves to choose from are those that both have."""
        return Requirements(
            block=self.block or other.block,
            local_only=self.local_only or other.local_only or self._excludes(other),
            regions=_both(self.regions, other.regions),
            jurisdictions_not=_all(self.jurisdictions_not, other.jurisdictions_not),
            providers=_both(self.providers, other.providers),
            training=self.training or other.training,
            retention_days_max=_least(self.retention_days_max, other.retention_days_max),
            baa=self.baa or other.baa,
            licence=self.licence.joined(other.licence),
            redact=max(self.redact, other.redact, key=tuple(Redact).index),
            thinking_cap=_least(self.thinking_cap, other.thinking_cap),
            failure_cost_usd=_most(self.failure_cost_usd, other.failure_cost_usd),
            min_pass_rate=_most(self.min_pass_rate, other.min_pass_rate),
            max_cost_usd=_least(self.max_cost_usd, other.max_cost_usd),
            deadline_ms=_least(self.deadline_ms, other.deadline_ms),
        )

    def stakes(self) -> Stakes:
        return stakes(self.failure_cost_usd, self.min_pass_rate, self.max_cost_usd, self.deadline_ms)

    def _excludes(self, other: "Requirements") -> bool:
        """No place but a local one is on both lists."""
        return _apart(self.regions, other.regions) or _apart(self.providers, other.providers)

    @property
    def private(self) -> bool:
        """The provider must neither keep nor train on it."""
        return self.training == "never" or self.retention_days_max is not None or self.baa


def _both(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """An empty list leaves everything."""
    return tuple(name for name in one if name in other) if one and other else one or other


def _apart(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return bool(one and other) and not set(one) & set(other)


def _least(one: N | None, other: N | None) -> N | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _most(one: M | None, other: M | None) -> M | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _all(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*one, *other)))
