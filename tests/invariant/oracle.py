"""What may reach whom, told from a policy's plain values. Knows nothing of the gateway, and uses none of its code."""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

Demands = Mapping[str, Any]
"""A class, as the policy file writes it."""


@dataclass(frozen=True)
class Place:
    """A target, in the words of policy and catalog. None and "": not stated."""

    id: str
    provider: str = ""
    local: bool = False
    region: str = ""
    jurisdiction: str = ""
    training: bool | None = None
    retention_days: int | None = None
    baa: bool = False
    commercial: bool | None = None
    train_on_outputs: bool | None = None
    users_max: int | None = None
    expires_ms: int | None = None
    wire: str = "openai_compatible"


_REACHING = {"web_search_options": "web_search", "models": "models"}
"""Fields of a body by which a provider reaches further, and as what."""
NOWHERE = Place("nowhere")
"""Of which nothing is known: what a webhook is."""


@dataclass(frozen=True)
class Rulebook:
    """One policy: its classes, its places, and to whom it posts."""

    classes: Mapping[str, Demands]
    places: Mapping[str, Place]
    webhooks: frozenset[str] = frozenset()
    default: str = "internal"
    unscannable: Mapping[str, str] = field(default_factory=dict)
    """What nobody can read → its class."""


@dataclass(kw_only=True)
class Asked:
    """What is known of one request, by whoever wrote it."""

    rules: Rulebook
    planted: Mapping[str, str] = field(default_factory=dict)
    """Classes of which it holds a canary → how that is written in it."""
    firm: frozenset[str] = frozenset()
    """Declared by header or key, or by an earlier request of its session."""
    session: frozenset[str] = frozenset()
    """Found in earlier requests of its session."""
    region: str = ""
    bytes_only: bool = False
    """Sent by somebody who had forgotten what it is: only what stands in the bytes can be known of it."""


@dataclass(frozen=True)
class Seen:
    place: str
    at_ms: int
    body: bytes


@dataclass
class Judge:
    """`canaries`: class → words of which each betrays it."""

    canaries: Mapping[str, tuple[str, ...]]
    violations: list[str] = field(default_factory=list)

    def request(self, asked: Asked, seen: Seen) -> None:
        place = asked.rules.places[seen.place]
        for reason in self._reasons(asked, place, seen):
            self.violations.append(f"{seen.place}: {reason}")

    def webhook(self, rules: Sequence[Rulebook], seen: Seen) -> None:
        """`rules`: those that were in force when it may have left."""
        if not any(seen.place in one.webhooks for one in rules):
            self.violations.append(f"{seen.place}: the policy does not name this webhook")
        for name in self.betrayed(seen.body, {}):
            if not any(permits(one.classes[name], NOWHERE) for one in rules):
                self.violations.append(f"{seen.place}: a webhook was told of {name}")

    def betrayed(self, body: bytes, planted: Mapping[str, str]) -> set[str]:
        """Classes that stand in these bytes for everybody to read, or written as they were planted."""
        text = "\n".join(texts(body)).casefold()
        written = {name: (*words, *filter(None, [planted.get(name)])) for name, words in self.canaries.items()}
        return {name for name, words in written.items() if any(word.casefold() in text for word in words)}

    def _reasons(self, asked: Asked, place: Place, seen: Seen) -> Iterator[str]:
        classes, readable, tools = asked.rules.classes, self.betrayed(seen.body, asked.planted), hosted(seen.body)
        for name in sorted(readable):
            if not permits(classes[name], place, tools):
                yield f"it can read {name}"
            if classes[name].get("redact") == "remote" and not place.local:
                yield f"{name} was not redacted"
        if not permits(classes[asked.rules.default], place, tools):
            yield "it may not even have the default"
        if not asked.bytes_only:
            yield from (f"it was sent something of {name}" for name in _refusing(asked, place, tools))
        if asked.region and not place.local and place.region != asked.region:
            yield "the caller wanted another region"
        if not place.local and place.expires_ms is not None and seen.at_ms > place.expires_ms:
            yield "its evidence had expired"


def _refusing(asked: Asked, place: Place, tools: Set[str]) -> Iterator[str]:
    """Classes that the place may not have, whatever stands in the bytes: redacted, or as it is."""
    for name in sorted({*asked.planted, *asked.session, *asked.firm}):
        demands = asked.rules.classes[name]
        left = asked.rules.classes[demands.get("redacted_to") or asked.rules.default]
        redacted = name not in asked.firm and demands.get("redact", "never") != "never"
        if not (permits(demands, place, tools) or (redacted and permits(left, place, tools))):
            yield name


def hosted(body: bytes) -> set[str]:
    """What a provider would do with these bytes beside answering."""
    fields = json.loads(body)
    tools = {tool.get("type", "function") for tool in fields.get("tools", ())} - {"function"}
    return tools | {_REACHING[name] for name in _REACHING.keys() & fields.keys()}


def permits(demands: Demands, place: Place, tools: Set[str] = frozenset()) -> bool:
    """Whether a place may see what has this class, and do all this with it. What is not stated is not promised."""
    listed = "" if "tools" not in demands else () if demands["tools"] == "none" else tuple(demands["tools"])
    if demands.get("block") or not all(tool.startswith(listed) for tool in tools):
        return False
    licence = demands.get("licence", {})
    if any(getattr(place, use) is not True for use in licence.get("uses", ())):
        return False
    users = licence.get("users")
    if users is not None and (place.commercial is None or (place.users_max is not None and place.users_max < users)):
        return False
    return place.local or _permits_away(demands, place)


def _permits_away(demands: Demands, place: Place) -> bool:
    excluded, most = demands.get("jurisdictions_not"), demands.get("retention_days_max")
    return not (
        demands.get("local_only")
        or (demands.get("regions") and place.region not in demands["regions"])
        or (excluded and (not place.jurisdiction or place.jurisdiction in excluded))
        or (demands.get("providers") and place.provider not in demands["providers"])
        or (demands.get("training") == "never" and place.training is not False)
        or (most is not None and (place.retention_days is None or place.retention_days > most))
        or (demands.get("baa") and not place.baa)
    )


def texts(body: bytes) -> Iterator[str]:
    """The bytes as they are, and every string in them, JSON within JSON too."""
    text = body.decode("utf-8", "replace")
    yield text
    try:
        value = json.loads(text)
    except ValueError:
        return
    yield from _strings(value)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):
            yield from texts(value.encode())
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _strings(item)
