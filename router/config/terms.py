"""What a provider promises one target: the catalog's terms, and what a contract of the operator's adds."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from router.config.policy import TermsRow
from router.config.source import Loc, Source
from router.types.clock import now_ms
from router.types.target import Provider, Terms


def terms(source: Source, loc: Loc, row: TermsRow, provider: Provider) -> Terms:
    """`loc` is that of the row. Reports claims without evidence, evidence that has expired, and terms of nobody."""
    given = row.model_dump(exclude_none=True)
    until = _start(given.pop("expires")) if row.expires else provider.terms.expires_ms
    found = replace(provider.terms, **_lower(given), expires_ms=until)
    if provider.local and row.model_fields_set:
        what = f"{provider.id} is local: there is no provider that could promise anything"
        source.report(source.key(loc), what, "remove terms")
        return found
    for key in _stronger(found, provider.terms) if row.evidence is None else ():
        what = f"{key} is more than {provider.id} promises everybody, and nothing vouches for it"
        source.report(source.key((*loc, key)), what, f'remove {key}, or add evidence: "the contract that says so"')
    if row.expires and until is not None and until <= now_ms():
        what = f"the evidence expired on {row.expires}: nobody would be served there"
        source.report_passed(source.node((*loc, "expires")), what, "renew it, or remove what it vouches for")
    return found


def _lower(given: dict[str, Any]) -> dict[str, Any]:
    """Headers of answers are looked up by their names in small letters."""
    verify = given.get("verify", "")
    return given | {"verify": verify.lower()} if verify.startswith("header:") else given


def _stronger(ours: Terms, theirs: Terms) -> list[str]:
    """What ours promise beyond theirs."""
    days, least = ours.retention_days, theirs.retention_days
    beyond = {
        "training": ours.training is False and theirs.training is not False,
        "retention_days": days is not None and (least is None or days < least),
        "baa": ours.baa and not theirs.baa,
    }
    return [key for key, more in beyond.items() if more]


def _start(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)
