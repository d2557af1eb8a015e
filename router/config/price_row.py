"""The shape of a price in a policy file."""

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from router.types.price import Price
from router.types.pricelist import DATE, HOURS, RATES, priced

Rate = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=9)]
"""USD per million tokens, or for one of a unit."""
Hours = Annotated[str, StringConstraints(pattern=HOURS)]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


def _in_the_calendar(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"the calendar has no {text}: write a day like 2027-01-01") from None
    return text


Date = Annotated[str, StringConstraints(pattern=DATE), AfterValidator(_in_the_calendar)]
_EFFECTS = frozenset({*RATES, "each", "times"})


class _Rates(BaseModel):
    """Those that may be left out: such tokens are charged as their nearest dearer kin."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
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


class PriceRule(_Rates):
    """What changes for some calls: all selectors must match; later rules win."""

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


class PriceRow(_Rates):
    """USD per million tokens."""

    input: Rate
    output: Rate
    rules: tuple[PriceRule, ...] = ()

    def price(self, version: str, *, assumed: bool = False) -> Price:
        return priced(self.model_dump(exclude_none=True), version, assumed=assumed)
