"""Random policies, places and requests, from one seed: plain values first, then the gateway's own."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

from router.budget.budget import Budget
from router.budget.loops import Loops
from router.config.policy import Config, Route, Sensitivity
from router.decide.strategies import Cheapest, Ordered, Weighted
from router.types.price import Price
from router.types.target import Capability, Licence, Model, Provider, Target, Terms, Timeouts, Wire
from tests.invariant.oracle import Demands, Place, Rulebook

REGIONS = ("eu", "us", "ap", "")
JURISDICTIONS = ("US", "DE", "CN", "")
PROVIDERS = ("anker", "boje", "deich")
CLASSES = ("public", "internal", "people", "health", "money", "source", "export")
DAY_MS = 86_400_000
_PRICE = Price(input=1_000_000_000, output=2_000_000_000, version="test")
_ALL = frozenset({Capability.CHAT, Capability.TOOLS, Capability.JSON_SCHEMA, Capability.N, Capability.VISION})
_MORE = _ALL | {Capability.COMPLETIONS, Capability.EMBEDDINGS}
_TIMEOUTS = Timeouts(connect=60_000, first=500, between=500, total=60_000)


@dataclass
class World:
    """Two policies, of which the second replaces the first in the middle, and what is planted."""

    name: str
    random: Random
    url: str
    canaries: Mapping[str, tuple[str, ...]]
    rulebooks: tuple[Rulebook, Rulebook]
    configs: tuple[Config, Config]
    sessions: tuple[str, ...]
    keys: Mapping[str, str]
    """Caller → the least class of what it sends; empty: none."""


def world(number: int, seed: str, url: str) -> World:
    random, name = Random(seed), f"w{number}"  # noqa: S311 - repeatable
    classes = tuple(CLASSES[: random.randint(3, len(CLASSES))])
    canaries = {one: tuple(f"{first}{random.getrandbits(40):010x}" for first in "qz") for one in classes}
    canaries["people"] = (*canaries["people"], f"{canaries['people'][0]}@mail.example")
    places = {place.id: place for place in (_place(random, index) for index in range(random.randint(2, 7)))}
    first = Rulebook(_classes(random, classes), places, _hooks(random), unscannable={"image": random.choice(classes)})
    by_number = enumerate(places.items())
    moved = {name: replace(_place(random, at), id=name, wire=place.wire) for at, (name, place) in by_number}
    second = Rulebook(_classes(random, classes), moved, _hooks(random), unscannable={"image": random.choice(classes)})
    # The default class itself is in every text, and can't be planted.
    planted = {one: words for one, words in canaries.items() if one != first.default}
    configs = (_config(random, name, url, planted, first), _config(random, name, url, planted, second))
    keys = {f"{name}-{key}": random.choice(("", "", "", *classes)) for key in ("anna", "bert")}
    # One session is named after something sensitive.
    sessions = ("", "", "monday", f"chat with {random.choice([words[-1] for words in planted.values()])}")
    return World(name, random, url, planted, (first, second), configs, sessions, keys)


def _place(random: Random, number: int) -> Place:
    local = random.random() < 0.3
    yesterday, tomorrow = _now_ms() - DAY_MS, _now_ms() + DAY_MS
    offers: dict[str, tuple[Any, ...]] = {
        "provider": PROVIDERS,
        "region": REGIONS,
        "jurisdiction": JURISDICTIONS,
        "training": (True, False, False, None),
        "retention_days": (0, 0, 30, None),
        "baa": (True, False),
        "commercial": (True, True, False, None),
        "train_on_outputs": (True, False, None),
        "users_max": (None, 1_000),
        "expires_ms": (None,) if local else (None, None, yesterday, tomorrow),
        "wire": ("openai_compatible", "openai_compatible", "anthropic"),
    }
    return Place(id=f"t{number}", local=local, **{name: random.choice(values) for name, values in offers.items()})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _classes(random: Random, names: tuple[str, ...]) -> dict[str, Demands]:
    """The order is that of the names; a class is left, once redacted, as one below it or as itself."""
    classes: dict[str, Demands] = {}
    for number, name in enumerate(names):
        demands = _demands(random) if number > 1 or (number and random.random() < 0.3) else {}
        if demands.get("redact", "never") != "never" and random.random() < 0.5:
            demands["redacted_to"] = random.choice(names[1 : number + 1] or names[:1])
        classes[name] = demands
    return classes


def _demands(random: Random) -> dict[str, Any]:
    offers: dict[str, Any] = {
        "regions": random.sample(REGIONS[:3], random.randint(1, 2)),
        "jurisdictions_not": random.sample(JURISDICTIONS[:3], 1),
        "providers": random.sample(PROVIDERS, random.randint(1, 2)),
        "training": "never",
        "retention_days_max": random.choice((0, 30)),
        "baa": True,
        "licence": random.choice(({"uses": ["commercial"]}, {"uses": ["train_on_outputs"]}, {"users": 5_000})),
        "local_only": True,
        "block": True,
        "tools": random.choice(("none", ["web_search"], ["mcp", "models"])),
        "redact": random.choice(("needed", "remote")),
    }
    weights = {"block": 0.04, "local_only": 0.1, "redact": 0.45, "licence": 0.1}
    return {name: value for name, value in offers.items() if random.random() < weights.get(name, 0.12)}


def _hooks(random: Random) -> frozenset[str]:
    return frozenset({f"hook-{random.randint(0, 99)}"} if random.random() < 0.6 else ())


def _config(random: Random, name: str, url: str, canaries: Mapping[str, tuple[str, ...]], rules: Rulebook) -> Config:
    targets = {place.id: _target(f"{url}/{name}", place) for place in rules.places.values()}
    names = tuple(targets)
    shuffled = tuple(random.sample(names, len(names)))
    weights = dict.fromkeys(shuffled[: max(1, len(names) - 1)], 1.0)
    routes = [
        Route("auto", Cheapest(kind="cheapest", targets=names)),
        Route("ordered", Ordered(kind="ordered", targets=shuffled)),
        Route("weighted", Weighted.model_validate({"kind": "weighted", "weights": weights})),
    ]
    by_name = {route.name: route for route in routes}
    soft: dict[str, Any] = {"id": "pot", "limit_usd": Decimal("0.01"), "scope": "session", "soft": True}
    shares = (Decimal("0.0001"), Decimal("0.001"), Decimal("0.01"))
    budgets = [Budget(**soft, alerts=shares, webhook=f"{url}/{name}/{hook}/x") for hook in rules.webhooks]
    own: dict[str, Any] = {"path": "", "hash": f"{random.getrandbits(64):016x}", "budget_status": 402}
    own |= {"targets": targets, "routes": by_name, "budgets": tuple(budgets), "loops": Loops(enabled=False)}
    return Config(**own, sensitivity=_sensitivity(canaries, rules))


def _sensitivity(canaries: Mapping[str, tuple[str, ...]], rules: Rulebook) -> Sensitivity:
    """Words for every class, and e-mail addresses for persons."""
    plain = {name: [word for word in words if "@" not in word] for name, words in canaries.items()}
    words = [{"kind": "keywords", "class": name, "words": own} for name, own in plain.items()]
    detectors = [*words, {"kind": "identifiers", "class": "people"}]
    fields = {"default": rules.default, "classes": rules.classes, "unscannable": rules.unscannable}
    return Sensitivity.model_validate(fields | {"detectors": detectors})


def _target(url: str, place: Place) -> Target:
    wire, local = Wire(place.wire), place.local
    provider = Provider(id=place.provider, wire=wire, base_url=url, jurisdiction=place.jurisdiction, local=local)
    licence = Licence(id="own", **_of(place, "commercial", "train_on_outputs", "users_max"))
    can = _ALL if wire is Wire.ANTHROPIC else _MORE
    card: dict[str, Any] = {"context": 100_000, "max_output": 1_000, "price": _PRICE, "licence": licence}
    return Target(
        id=place.id,
        model=Model(id=place.id, name="m", capabilities=can, **card),
        provider=provider,
        base_url=f"{url}/{place.id}/v1",
        region=place.region,
        terms=Terms(evidence="a contract", **_of(place, "training", "retention_days", "baa", "expires_ms")),
        timeouts=_TIMEOUTS,
        retries=1,
    )


def _of(place: Place, *names: str) -> dict[str, Any]:
    return {name: getattr(place, name) for name in names}


def escaped(body: dict[str, Any], words: tuple[str, ...], random: Random) -> bytes:
    """The body as JSON; at times with letters of what is planted written as JSON's escapes."""
    text = json.dumps(body)
    if random.random() < 0.3:
        for word in words:
            at = random.randrange(len(word))
            text = text.replace(word, word[:at] + f"\\u{ord(word[at]):04x}" + word[at + 1 :])
    return text.encode()
