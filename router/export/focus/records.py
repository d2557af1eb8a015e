"""One charge → one record: every column of the specification that a gateway can fill, and why the others are empty."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import msgspec
from msgspec import Struct

from router.export.focus.charges import METERS, REASONING, Charge
from router.export.focus.columns import DIGITS, NAMES, SCALES, Cell, Kind, Record
from router.ledger.facts.attempts import HOUR_MS
from router.ledger.facts.query import Label
from router.types.money import UNITS_PER_RATE, usd_from_nano

OWN = "lowpass"
"""Who adjusts, and whose tags bear the prefix."""
NOBODY = "default"
"""The billing account of keys without an organisation."""
_PREFIX = OWN + "/"
_PER_TOKENS, _PER_REQUEST = f"{UNITS_PER_RATE} Tokens", "Requests"
_TAGGED = ("organisation", "team", "key", "route", "task")


class Group(Struct, frozen=True):
    """What charges of one hour have in common: `of` names its dimensions, `provider` is a name for people."""

    hour: int
    of: Mapping[str, Label]
    provider: str
    local: bool

    def text(self, dimension: str) -> str | None:
        label = self.of[dimension]
        return None if label is None else str(label)


def usage(group: Group, charge: Charge, rest: Mapping[str, int]) -> Record:
    """`rest`: measures of the whole group, where this is its first record."""
    meter, bucket = METERS[charge.bucket], charge.bucket
    model, provider = group.text("model"), group.text("provider")
    sku = f"{provider}:{model}:{bucket}"
    unit, per = ("Tokens", _PER_TOKENS) if charge.counts_tokens else (_PER_REQUEST, _PER_REQUEST)
    priced = Decimal(charge.quantity) / (UNITS_PER_RATE if charge.counts_tokens else 1)
    about: dict[str, Cell] = {
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{meter} of {model} at {group.provider}",
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": Decimal(charge.quantity),
        "ConsumedUnit": unit,
        "ContractedUnitPrice": _unit_price(charge.cost, priced),
        "ListUnitPrice": _unit_price(charge.listed, priced),
        "PricingCategory": "Standard",
        "PricingQuantity": priced,
        "PricingUnit": per,
        "SkuId": sku,
        "SkuMeter": meter,
        "SkuPriceDetails": _json({"x_ModelName": model, "x_TokenBucket": bucket}),
        "SkuPriceId": sku,
        "x_TokenBucket": bucket,
    }
    if bucket == REASONING:
        about |= {"x_ThinkingCost": usd_from_nano(charge.cost), "x_ThinkingTokens": Decimal(charge.quantity)}
    return _record(group, charge.cost, charge.listed, _place(group), about, rest)


def adjustment(group: Group, nano: int, rest: Mapping[str, int]) -> Record:
    """Requests charged at their hold, since the gateway died before anybody knew what they had used."""
    by = {"HostProviderName": OWN, "InvoiceIssuerName": OWN, "ServiceName": OWN, "ServiceProviderName": OWN}
    about: dict[str, Cell] = {
        "ChargeCategory": "Adjustment",
        "ChargeDescription": "Requests of a gateway that died, charged at what was held for them",
        "ChargeFrequency": "One-Time",
    }
    return _record(group, nano, nano, by, about, rest)


def correction(group: Group, nano: int, rest: Mapping[str, int]) -> Record:
    """What a provider billed otherwise than it was charged (`lowpass ledger adjust`, `lowpass ledger reconcile`)."""
    about: dict[str, Cell] = {
        "ChargeCategory": "Adjustment",
        "ChargeDescription": f"Corrections of charges of {group.text('model')} at {group.provider}",
        "ChargeFrequency": "One-Time",
    }
    return _record(group, nano, nano, _place(group), about, rest)


def _record(
    group: Group, cost: int, listed: int, place: Mapping[str, Cell], about: Mapping[str, Cell], rest: Mapping[str, int]
) -> Record:
    billed = usd_from_nano(cost)
    costs = {"BilledCost": billed, "ContractedCost": billed, "EffectiveCost": billed, "ListCost": usd_from_nano(listed)}
    found: dict[str, Cell] = {**costs, **_when(group.hour), **_who(group), **place, **about, **_rest(rest)}
    return tuple(map(found.get, NAMES))


def _when(hour: int) -> dict[str, Cell]:
    """The billing period is the calendar month, the charge period the hour; both ends are exclusive. UTC."""
    start = _at(hour)
    month = start.replace(day=1, hour=0)
    following = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
    return {
        "BillingPeriodEnd": following,
        "BillingPeriodStart": month,
        "ChargePeriodEnd": _at(hour + 1),
        "ChargePeriodStart": start,
    }


def _at(hour: int) -> datetime:
    return datetime.fromtimestamp(hour * HOUR_MS // 1000, UTC)


def _who(group: Group) -> dict[str, Cell]:
    account, team = group.text("organisation") or NOBODY, group.text("team")
    return {
        "BillingAccountId": account,
        "BillingAccountName": account,
        "BillingAccountType": "Organisation",
        "BillingCurrency": "USD",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "SubAccountId": team,
        "SubAccountName": team,
        "SubAccountType": team and "Team",
        "Tags": _tags(group),
        "x_CostSource": group.text("cost_source"),
        "x_Effort": group.text("effort"),
        "x_KeyName": group.text("key"),
        "x_ModelName": group.text("model"),
        "x_PriceVersion": group.text("price_version"),
        "x_RouteName": group.text("route"),
        "x_TaskName": group.text("task"),
    }


def _place(group: Group) -> dict[str, Cell]:
    region = group.text("region")
    return {
        "HostProviderName": group.provider,
        "InvoiceIssuerName": group.provider,
        "RegionId": region,
        "RegionName": region,
        "ResourceId": group.text("target"),
        "ResourceType": "Model Target",
        "ServiceName": "Local Inference" if group.local else f"{group.provider} API",
        "ServiceProviderName": group.provider,
    }


def _rest(rest: Mapping[str, int]) -> dict[str, Cell]:
    if not rest:
        return {}
    saved = usd_from_nano(rest["cache_saved"])
    return {"x_Attempts": Decimal(rest["attempts"]), "x_CacheSaved": saved, "x_Requests": Decimal(rest["requests"])}


def _tags(group: Group) -> str | None:
    """A request's own tags have no values: true. Ours bear a prefix, which theirs can't have."""
    own = str(group.of["tags"] or "").split(",")
    tags: dict[str, str | bool] = {tag.replace(_PREFIX, "", tag.startswith(_PREFIX)): True for tag in own if tag}
    tags |= {_PREFIX + name: str(group.of[name]) for name in _TAGGED if group.of[name] is not None}
    return _json(tags) if tags else None


def _unit_price(nano: int, quantity: Decimal) -> Decimal:
    """The hour's average: the list price itself, unless rules changed it from one attempt to the next."""
    with localcontext() as context:
        context.prec = DIGITS
        return (usd_from_nano(nano) / quantity).quantize(Decimal(1).scaleb(-SCALES[Kind.PRICE]), ROUND_HALF_EVEN)


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
