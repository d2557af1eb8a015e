"""FOCUS 1.4, Cost and Usage: what the specification demands of each column, written from its text and from nothing of
ours. Rows are mappings of column → `Decimal`, `datetime`, text or None."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

Row = Mapping[str, Any]
Level = Literal["mandatory", "recommended", "conditional"]


class Demand(NamedTuple):
    """`condition`: of the operating model, where the level is conditional."""

    level: Level
    type: Literal["String", "Decimal", "Date/Time", "JSON"]
    nulls: bool
    condition: str = ""
    allowed: frozenset[str] = frozenset()


def _must(kind: Any = "String", nulls: bool = False, *allowed: str) -> Demand:
    return Demand("mandatory", kind, nulls, allowed=frozenset(allowed))


def _when(condition: str, kind: Any = "String", nulls: bool = True, *allowed: str) -> Demand:
    return Demand("conditional", kind, nulls, condition, frozenset(allowed))


_SERVICES = (
    "AI and Machine Learning",
    "Analytics",
    "Business Applications",
    "Compute",
    "Databases",
    "Developer Tools",
    "Multicloud",
    "Identity",
    "Integration",
    "Internet of Things",
    "Management and Governance",
    "Media",
    "Migration",
    "Mobile",
    "Networking",
    "Security",
    "Storage",
    "Web",
    "Other",
)
_OF_AI = ("AI Platforms", "Bots", "Generative AI", "Machine Learning", "Natural Language Processing")
COMMITTED, CONTRACT, CAPACITY = "commitment discounts", "contract commitments", "capacity reservations"
SPLIT, INVOICES, CURRENCIES, PROGRAMS = "split cost", "payable invoices", "currency differences", "commitment programs"
USAGE, LISTED, NEGOTIATED, SKUS = "usage measurement", "list unit prices", "negotiated pricing", "unit pricing"
CATEGORIES, REGIONS, RESOURCES, TAGS = "several pricing categories", "regions", "provisioned resources", "tags"
SUB, SUB_TYPES, ACCOUNT_TYPES = "sub accounts", "several sub account types", "several billing account types"
ZONES = "availability zones"
OURS = {USAGE, LISTED, NEGOTIATED, SKUS, REGIONS, RESOURCES, TAGS, SUB, SUB_TYPES, ACCOUNT_TYPES, CATEGORIES}
"""What the operating model of a gateway includes, taken widely."""

COLUMNS: Mapping[str, Demand] = {
    "AllocatedMethodDetails": Demand("recommended", "JSON", True, SPLIT),
    "AllocatedMethodId": _when(SPLIT),
    "AllocatedResourceId": _when(SPLIT),
    "AllocatedResourceName": _when(SPLIT),
    "AllocatedTags": _when(SPLIT, "JSON"),
    "AvailabilityZone": Demand("recommended", "String", True, ZONES),
    "BilledCost": _must("Decimal"),
    "BillingAccountId": _must(),
    "BillingAccountName": _must(nulls=True),
    "BillingAccountType": _when(ACCOUNT_TYPES, nulls=False),
    "BillingCurrency": _must(),
    "BillingPeriodEnd": _must("Date/Time"),
    "BillingPeriodStart": _must("Date/Time"),
    "CapacityReservationId": _when(CAPACITY),
    "CapacityReservationStatus": _when(CAPACITY, "String", True, "Used", "Unused"),
    "ChargeCategory": _must("String", False, "Usage", "Purchase", "Tax", "Credit", "Adjustment"),
    "ChargeClass": _must("String", True, "Correction"),
    "ChargeDescription": _must(nulls=True),
    "ChargeFrequency": Demand(
        "recommended", "String", False, allowed=frozenset({"One-Time", "Recurring", "Usage-Based"})
    ),
    "ChargePeriodEnd": _must("Date/Time"),
    "ChargePeriodStart": _must("Date/Time"),
    "CommitmentDiscountCategory": _when(COMMITTED, "String", True, "Spend", "Usage"),
    "CommitmentDiscountId": _when(COMMITTED),
    "CommitmentDiscountName": _when(COMMITTED),
    "CommitmentDiscountQuantity": _when(COMMITTED, "Decimal"),
    "CommitmentDiscountStatus": _when(COMMITTED, "String", True, "Used", "Unused"),
    "CommitmentDiscountType": _when(COMMITTED),
    "CommitmentDiscountUnit": _when(COMMITTED),
    "CommitmentProgramEligibilityDetails": _when(PROGRAMS, "JSON"),
    "ConsumedQuantity": _when(USAGE, "Decimal"),
    "ConsumedUnit": _when(USAGE),
    "ContractApplied": _when(CONTRACT, "JSON"),
    "ContractedCost": _must("Decimal"),
    "ContractedUnitPrice": _when(NEGOTIATED, "Decimal"),
    "EffectiveCost": _must("Decimal"),
    "HostProviderName": _must(),
    "InvoiceDetailId": _when(INVOICES),
    "InvoiceId": _when(INVOICES),
    "InvoiceIssuerName": _must(),
    "ListCost": _must("Decimal"),
    "ListUnitPrice": _when(LISTED, "Decimal"),
    "PricingCategory": _when(CATEGORIES, "String", True, "Standard", "Dynamic", "Committed", "Other"),
    "PricingCurrency": _when(CURRENCIES, nulls=False),
    "PricingCurrencyContractedUnitPrice": _when(CURRENCIES, "Decimal"),
    "PricingCurrencyEffectiveCost": _when(CURRENCIES, "Decimal", False),
    "PricingCurrencyListUnitPrice": _when(CURRENCIES, "Decimal"),
    "PricingQuantity": _must("Decimal", True),
    "PricingUnit": _must(nulls=True),
    "RegionId": _when(REGIONS),
    "RegionName": _when(REGIONS),
    "ResourceId": _when(RESOURCES),
    "ResourceName": _when(RESOURCES),
    "ResourceType": _when(RESOURCES),
    "ServiceCategory": _must("String", False, *_SERVICES),
    "ServiceName": _must(),
    "ServiceProviderName": _must(),
    "ServiceSubcategory": Demand("recommended", "String", False),
    "SkuId": _when(SKUS),
    "SkuMeter": _when(SKUS),
    "SkuPriceDetails": _when(SKUS, "JSON"),
    "SkuPriceId": _when(SKUS),
    "SubAccountId": _when(SUB),
    "SubAccountName": _when(SUB),
    "SubAccountType": _when(SUB_TYPES),
    "Tags": _when(TAGS, "JSON"),
}
"""All 65 of the version, in the order of its document."""

_UNIT = re.compile(r"([1-9][0-9]* )?[A-Z][A-Za-z]*(-[A-Z][A-Za-z]*)?(/([1-9][0-9]* )?[A-Z][A-Za-z]*)?")
_NANO = Decimal("0.000000001")
_PRICED = ("Usage", "Purchase")


def _together(*columns: str) -> Callable[[Row], bool]:
    return lambda row: len({row[column] is None for column in columns}) == 1


def _key_value(text: str) -> bool:
    """One object of plain values, each key once."""
    found = json.loads(text, object_pairs_hook=list)
    names = [name for name, _ in found]
    plain = all(value is None or isinstance(value, str | int | float | bool) for _, value in found)
    return text.startswith("{") and len(names) == len(set(names)) and plain


def _product(cost: str, price: str) -> Callable[[Row], bool]:
    def equal(row: Row) -> bool:
        if row[price] is None or row["PricingQuantity"] is None:
            return True
        return bool(abs(row[price] * row["PricingQuantity"] - row[cost]) < _NANO / 2)

    return equal


def _midnight_of_the_first(when: datetime) -> bool:
    return (when.day, when.hour, when.minute, when.second) == (1, 0, 0, 0)


def _unless(column: str) -> Callable[[Callable[[Row], bool]], Callable[[Row], bool]]:
    return lambda check: lambda row: row[column] is None or check(row)


RULES: Mapping[str, tuple[tuple[str, Callable[[Row], bool]], ...]] = {
    "BilledCost": (("whole nano-dollars", lambda row: row["BilledCost"] % _NANO == 0),),
    "BillingAccountName": (("differs for each account", lambda row: bool(row["BillingAccountName"])),),
    "BillingAccountType": (("null as the id", _together("BillingAccountType", "BillingAccountId")),),
    "BillingCurrency": (("ISO 4217", lambda row: re.fullmatch("[A-Z]{3}", row["BillingCurrency"]) is not None),),
    "BillingPeriodEnd": (
        ("after its start", lambda row: row["BillingPeriodStart"] < row["BillingPeriodEnd"]),
        ("a month's begin", lambda row: _midnight_of_the_first(row["BillingPeriodEnd"])),
    ),
    "BillingPeriodStart": (("a month's begin", lambda row: _midnight_of_the_first(row["BillingPeriodStart"])),),
    "ChargeClass": (("null but for corrections of what was invoiced", lambda row: row["ChargeClass"] is None),),
    "ChargeDescription": (("should be there", lambda row: bool(row["ChargeDescription"])),),
    "ChargeFrequency": (
        (
            "purchases are not by usage",
            lambda row: (row["ChargeCategory"], row["ChargeFrequency"]) != ("Purchase", "Usage-Based"),
        ),
    ),
    "ChargePeriodEnd": (
        ("after its start", lambda row: row["ChargePeriodStart"] < row["ChargePeriodEnd"]),
        ("within the billing period", lambda row: row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]),
    ),
    "ChargePeriodStart": (
        ("within the billing period", lambda row: row["BillingPeriodStart"] <= row["ChargePeriodStart"]),
    ),
    "ConsumedQuantity": (
        ("null without a SKU price", lambda row: row["SkuPriceId"] is not None or row["ConsumedQuantity"] is None),
        (
            "for usage and only for it",
            lambda row: (row["ConsumedQuantity"] is None) == (row["ChargeCategory"] != "Usage"),
        ),
    ),
    "ConsumedUnit": (
        ("null as the quantity", _together("ConsumedUnit", "ConsumedQuantity")),
        ("a unit", _unless("ConsumedUnit")(lambda row: _UNIT.fullmatch(row["ConsumedUnit"]) is not None)),
    ),
    "ContractedCost": (("unit price × quantity", _product("ContractedCost", "ContractedUnitPrice")),),
    "ContractedUnitPrice": (
        ("null without a SKU price", lambda row: row["SkuPriceId"] is not None or row["ContractedUnitPrice"] is None),
        ("not negative", _unless("ContractedUnitPrice")(lambda row: row["ContractedUnitPrice"] >= 0)),
    ),
    "EffectiveCost": (("as billed without commitments", lambda row: row["EffectiveCost"] == row["BilledCost"]),),
    "HostProviderName": (("a name", lambda row: bool(row["HostProviderName"].strip())),),
    "InvoiceIssuerName": (("a name", lambda row: bool(row["InvoiceIssuerName"].strip())),),
    "ListCost": (
        ("unit price × quantity", _product("ListCost", "ListUnitPrice")),
        (
            "as billed where there is no unit price",
            lambda row: row["ListUnitPrice"] is not None or row["ListCost"] == row["BilledCost"],
        ),
    ),
    "ListUnitPrice": (
        ("null as the SKU price", _together("ListUnitPrice", "SkuPriceId")),
        ("not negative", _unless("ListUnitPrice")(lambda row: row["ListUnitPrice"] >= 0)),
    ),
    "PricingCategory": (
        (
            "there for usage and purchases",
            lambda row: row["ChargeCategory"] not in _PRICED or row["PricingCategory"] is not None,
        ),
    ),
    "PricingQuantity": (
        ("null as the SKU price", _together("PricingQuantity", "SkuPriceId")),
        (
            "there for usage and purchases",
            lambda row: row["ChargeCategory"] not in _PRICED or row["PricingQuantity"] is not None,
        ),
    ),
    "PricingUnit": (
        ("null as the quantity", _together("PricingUnit", "PricingQuantity")),
        ("a unit", _unless("PricingUnit")(lambda row: _UNIT.fullmatch(row["PricingUnit"]) is not None)),
    ),
    "RegionName": (("null as the id", _together("RegionName", "RegionId")),),
    "ResourceName": (
        ("null without an id", lambda row: row["ResourceId"] is not None or row["ResourceName"] is None),
        ("no copy of the id", _unless("ResourceName")(lambda row: row["ResourceName"] != row["ResourceId"])),
    ),
    "ResourceType": (("null as the id", _together("ResourceType", "ResourceId")),),
    "ServiceName": (("a name", lambda row: bool(row["ServiceName"].strip())),),
    "ServiceProviderName": (("a name", lambda row: bool(row["ServiceProviderName"].strip())),),
    "ServiceSubcategory": (
        (
            "of its category",
            lambda row: row["ServiceCategory"] == "AI and Machine Learning" and row["ServiceSubcategory"] in _OF_AI,
        ),
    ),
    "SkuId": (
        ("there for usage and purchases", lambda row: row["ChargeCategory"] not in _PRICED or row["SkuId"] is not None),
    ),
    "SkuMeter": (("null as the SKU", _together("SkuMeter", "SkuId")),),
    "SkuPriceDetails": (
        ("null without a SKU price", lambda row: row["SkuPriceId"] is not None or row["SkuPriceDetails"] is None),
        (
            "own keys have their prefix",
            _unless("SkuPriceDetails")(
                lambda row: all(name.startswith("x_") for name in json.loads(row["SkuPriceDetails"]))
            ),
        ),
    ),
    "SkuPriceId": (
        (
            "there for usage and purchases",
            lambda row: row["ChargeCategory"] not in _PRICED or row["SkuPriceId"] is not None,
        ),
        ("has a SKU", _together("SkuPriceId", "SkuId")),
    ),
    "SubAccountName": (("null as the id", _together("SubAccountName", "SubAccountId")),),
    "SubAccountType": (("null as the id", _together("SubAccountType", "SubAccountId")),),
    "Tags": (
        (
            "the provider's bear its prefix",
            _unless("Tags")(
                lambda row: all(
                    value is True or name.startswith("lowpass/") for name, value in json.loads(row["Tags"]).items()
                )
            ),
        ),
    ),
}
"""What a column demands of itself and of others, row by row."""


def breaches(column: str, rows: list[Row]) -> list[str]:
    """Of one column that is there: its type, its nulls, its values, its rules."""
    demand = COLUMNS[column]
    found = []
    for number, row in enumerate(rows):
        value = row[column]
        if value is None:
            found += [] if demand.nulls else [f"{number}: null"]
        elif not _TYPES[demand.type](value):
            found.append(f"{number}: not a {demand.type}: {value!r}")
        elif demand.allowed and value not in demand.allowed:
            found.append(f"{number}: not allowed: {value!r}")
        found += [f"{number}: {name}" for name, holds in RULES.get(column, ()) if not holds(row)]
    return found


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "String": lambda value: isinstance(value, str) and bool(value.strip()) and value != "Not Applicable",
    "Decimal": lambda value: isinstance(value, Decimal) and value.is_finite(),
    "Date/Time": lambda value: isinstance(value, datetime) and value.tzinfo is not None and not value.utcoffset(),
    "JSON": lambda value: isinstance(value, str) and _key_value(value),
}
