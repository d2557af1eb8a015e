"""The columns of an export, in their order: those of the specification by name, then our own with the prefix `x_`."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from msgspec import Struct

VERSION = "1.4"
"""Of the specification, ratified on 2026-06-04: https://focus.finops.org/focus-specification/"""
Cell = str | Decimal | datetime | None
Record = tuple[Cell, ...]
"""One value a column, in their order."""


class Kind(StrEnum):
    TEXT = "text"
    JSON = "json"
    """An object, as text."""
    TIME = "time"
    COST = "cost"
    """USD, to the nano-dollar."""
    QUANTITY = "quantity"
    PRICE = "price"
    """USD for one of the pricing unit."""


SCALES = {Kind.COST: 9, Kind.QUANTITY: 6, Kind.PRICE: 18}
"""Decimals; times a quantity, a price of 18 is right to the nano-dollar. 38 digits in all (decimal128)."""
DIGITS = 38


class Column(Struct, frozen=True):
    name: str
    kind: Kind = Kind.TEXT


_COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "x_CacheSaved", "x_ThinkingCost")
_QUANTITIES = ("ConsumedQuantity", "PricingQuantity", "x_Attempts", "x_Requests", "x_ThinkingTokens")
_KINDS = {
    **dict.fromkeys(_COSTS, Kind.COST),
    **dict.fromkeys(_QUANTITIES, Kind.QUANTITY),
    **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), Kind.PRICE),
    **dict.fromkeys(("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"), Kind.TIME),
    **dict.fromkeys(("SkuPriceDetails", "Tags"), Kind.JSON),
}
_NAMES = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "HostProviderName",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceProviderName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    "Tags",
    "x_Attempts",
    "x_CacheSaved",
    "x_CostSource",
    "x_Effort",
    "x_KeyName",
    "x_ModelName",
    "x_PriceVersion",
    "x_Requests",
    "x_RouteName",
    "x_TaskName",
    "x_ThinkingCost",
    "x_ThinkingTokens",
    "x_TokenBucket",
)
COLUMNS = tuple(Column(name, _KINDS.get(name, Kind.TEXT)) for name in _NAMES)
NAMES = _NAMES
