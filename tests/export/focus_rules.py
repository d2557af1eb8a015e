"""FOCUS 1.4, Cost and Usage: what the specification demands of each column, written from its text and from nothing of
ours. Rows are mappings of column → `Decimal`, `datetime`, text or None."""

import csv
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

Row = Mapping[str, Any]
Check = Callable[[Row], bool]
OURS = {"usage measurement", "list unit prices", "negotiated pricing", "unit pricing", "regions", "tags"}
OURS |= {"provisioned resources", "sub accounts", "several sub account types", "several billing account types"}
OURS |= {"several pricing categories"}
"""What the operating model of a gateway includes, taken widely."""


class Demand(NamedTuple):
    """`condition`: of the operating model, where the level is conditional. `allowed`: nothing where all values are.
    `together`: the column that is null where this one is. `usual`: names of `_USUAL`."""

    level: str
    type: str
    nulls: bool
    condition: str
    allowed: frozenset[str]
    together: str
    usual: tuple[str, ...]


with Path(__file__).with_name("focus_1_4.csv").open(encoding="utf-8", newline="") as _file:
    COLUMNS: Mapping[str, Demand] = {
        row["column"]: Demand(
            *(row["level"], row["type"], row["nulls"] == "yes", row["condition"]),
            *(frozenset(filter(None, row["allowed"].split(";"))), row["together"]),
            tuple(filter(None, row["usual"].split(";"))),
        )
        for row in csv.DictReader(_file)
    }
"""All 65 of the version, in the order of its document."""

_UNIT = re.compile(r"([1-9][0-9]* )?[A-Z][A-Za-z]*(-[A-Z][A-Za-z]*)?(/([1-9][0-9]* )?[A-Z][A-Za-z]*)?")
_OF_AI = ("AI Platforms", "Bots", "Generative AI", "Machine Learning", "Natural Language Processing")
_NANO = Decimal("0.000000001")


def _if_there(column: str, name: str, holds: Callable[[Any], bool]) -> dict[str, Check]:
    return {name: lambda row: row[column] is None or holds(row[column])}


def _product(cost: str, price: str) -> dict[str, Check]:
    def equal(row: Row) -> bool:
        known = row[price] is not None and row["PricingQuantity"] is not None
        return not known or bool(abs(row[price] * row["PricingQuantity"] - row[cost]) < _NANO / 2)

    return {"unit price × quantity": equal}


_USUAL: Mapping[str, Callable[[str, Row], bool]] = {
    "a name": lambda column, row: bool((row[column] or "").strip()),
    "a unit": lambda column, row: row[column] is None or _UNIT.fullmatch(row[column]) is not None,
    "not negative": lambda column, row: row[column] is None or bool(row[column] >= 0),
    "a month's begin": lambda column, row: f"{row[column]:%d %H:%M:%S}" == "01 00:00:00",
    "null without a SKU price": lambda column, row: row["SkuPriceId"] is not None or row[column] is None,
    "there for usage and purchases": lambda column, row: (
        row["ChargeCategory"] not in ("Usage", "Purchase") or row[column] is not None
    ),
}


RULES: Mapping[str, dict[str, Check]] = {
    "BilledCost": {"whole nano-dollars": lambda row: row["BilledCost"] % _NANO == 0},
    "BillingCurrency": {"ISO 4217": lambda row: re.fullmatch("[A-Z]{3}", row["BillingCurrency"]) is not None},
    "BillingPeriodEnd": {"after its start": lambda row: row["BillingPeriodStart"] < row["BillingPeriodEnd"]},
    "ChargeClass": {"null but for corrections of what was invoiced": lambda row: row["ChargeClass"] is None},
    "ChargeFrequency": {
        "no purchase by usage": lambda row: (
            {row["ChargeCategory"], row["ChargeFrequency"]} != {"Purchase", "Usage-Based"}
        )
    },
    "ChargePeriodEnd": {
        "after its start": lambda row: row["ChargePeriodStart"] < row["ChargePeriodEnd"],
        "within the billing period": lambda row: row["ChargePeriodEnd"] <= row["BillingPeriodEnd"],
    },
    "ChargePeriodStart": {
        "within the billing period": lambda row: row["BillingPeriodStart"] <= row["ChargePeriodStart"]
    },
    "ConsumedQuantity": {
        "for usage only": lambda row: (row["ConsumedQuantity"] is None) == (row["ChargeCategory"] != "Usage")
    },
    "ContractedCost": _product("ContractedCost", "ContractedUnitPrice"),
    "EffectiveCost": {"as billed without commitments": lambda row: row["EffectiveCost"] == row["BilledCost"]},
    "ListCost": _product("ListCost", "ListUnitPrice")
    | {"as billed without one": lambda row: row["ListUnitPrice"] is not None or row["ListCost"] == row["BilledCost"]},
    "ResourceName": {
        "null without an id": lambda row: row["ResourceId"] is not None or row["ResourceName"] is None,
        "no copy of the id": lambda row: row["ResourceName"] is None or row["ResourceName"] != row["ResourceId"],
    },
    "ServiceCategory": {"that of models": lambda row: row["ServiceCategory"] == "AI and Machine Learning"},
    "ServiceSubcategory": {"of its category": lambda row: row["ServiceSubcategory"] in _OF_AI},
    "SkuPriceDetails": _if_there(
        "SkuPriceDetails", "own keys", lambda keys: all(key.startswith("x_") for key in json.loads(keys))
    ),
    "Tags": _if_there(
        "Tags",
        "the provider's bear its prefix",
        lambda tags: all(value is True or name.startswith("lowpass/") for name, value in json.loads(tags).items()),
    ),
}
"""What else a column demands of itself and of others, row by row."""


def breaches(column: str, rows: list[Row]) -> list[str]:
    """Of one column that is there: its type, its nulls, its values, its rules."""
    demand, found = COLUMNS[column], []
    rules: dict[str, Check] = {name: partial(_USUAL[name], column) for name in demand.usual} | RULES.get(column, {})
    if demand.together:
        rules[f"null as {demand.together}"] = lambda row: (row[column] is None) == (row[demand.together] is None)
    for number, row in enumerate(rows):
        value = row[column]
        if value is None:
            found += [] if demand.nulls else [f"{number}: null"]
        elif not _TYPES[demand.type](value):
            found.append(f"{number}: not a {demand.type}: {value!r}")
        elif demand.allowed and value not in demand.allowed:
            found.append(f"{number}: not allowed: {value!r}")
        found += [f"{number}: {name}" for name, holds in rules.items() if not holds(row)]
    return found


def _key_value(text: str) -> bool:
    """One object of plain values, each key once."""
    pairs = json.loads(text, object_pairs_hook=list)
    plain = all(value is None or isinstance(value, str | int | float | bool) for _, value in pairs)
    return text.startswith("{") and len(pairs) == len({name for name, _ in pairs}) and plain


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "String": lambda value: isinstance(value, str) and bool(value.strip()) and value != "Not Applicable",
    "Decimal": lambda value: isinstance(value, Decimal) and value.is_finite(),
    "Date/Time": lambda value: isinstance(value, datetime) and value.tzinfo is not None and not value.utcoffset(),
    "JSON": lambda value: isinstance(value, str) and _key_value(value),
}
