"""The egress report: where requests went, and that no row can break the policy of its time without being named."""

import json
from decimal import Decimal
from functools import partial
from typing import Any

from msgspec import convert, structs

from router.decide.eligibility import LicenceDemands, LicensedUse, Redact, Requirements
from router.decide.in_force import PolicyInForce, in_force, read
from router.ledger.ledger import Ledger
from router.ledger.rows import documents
from router.report.render import as_json
from router.types.target import Licence, Model, Provider, Secret, Target, Terms, Wire
from tests.ledger.books import found
from tests.report.asking import reported, totals
from tests.report.filled import MONDAY_MS, Happened, Tried, fill
from tests.stores import Make
from tests.tables import data, each_row

EXPIRES = MONDAY_MS + 1_000


def target(name: str, law: str, region: str = "", *, local: bool = False, **terms: Any) -> Target:
    model = Model(id="m", name="m", context=1, max_output=1, capabilities=frozenset(), licence=Licence(id="mit"))
    maker = {"entity": f"{name} Ltd", "jurisdiction": law, "local": local}
    provider = convert({"id": f"by-{name}", "wire": Wire.ANTHROPIC, "base_url": "", **maker}, Provider)
    url, headers = "https://user:hidden-url@x.example/v1", {"x-team": "hidden-header"}
    hidden = partial(Target, base_url=url, api_key=Secret("hidden-key"), headers=headers)
    return hidden(id=name, model=model, provider=provider, region=region, terms=Terms(**terms))


TARGETS = {
    "home": target("home", "", local=True),
    "us": target("us", "US", "us"),
    "eu": target("eu", "IE", "eu", training=False, retention_days=0, baa=True, evidence="contract 7"),
    "ends": target("ends", "IE", "eu", training=False, expires_ms=EXPIRES, evidence="contract 8"),
    "cn": target("cn", "CN", "cn"),
}
CLASSES = {
    "internal": Requirements(),
    "pii": Requirements(jurisdictions_not=("CN",), redact=Redact.NEEDED, redacted_to="internal"),
    "eu": Requirements(regions=("eu",)),
    "secret": Requirements(local_only=True),
}
POLICY = in_force("0123456789abcdef", "internal", CLASSES, TARGETS)


def went(
    classes: str,
    target: str,
    sent: str = "",
    outcome: str = "ok",
    policy: PolicyInForce = POLICY,
    at_ms: int = 0,
    **more: Any,
) -> Happened:
    """One request, and one attempt of it, or none where there is no target; `sent`: with which classes."""
    held = frozenset(classes.split("+"))
    request = partial(Happened, data_class=max(held, key=tuple(CLASSES).index), classes=held, policy=policy.hash)
    if not target:
        return request(status=403, error="no_eligible_target", at_ms=at_ms or MONDAY_MS)
    about = {"classes": frozenset(sent.split("+")) if sent else held, "region": TARGETS[target].region, **more}
    tried = Tried(target, usage=Tried(target).usage if outcome == "ok" else None, outcome=outcome, more=about)
    return request(tried=(tried,), status=200, at_ms=at_ms or MONDAY_MS)


def send(ledger: Ledger, *happened: Happened, policies: tuple[PolicyInForce, ...] = (POLICY,)) -> Ledger:
    """As the requests r000000, r000001, …"""
    named = (structs.replace(one, id=f"r{number:06}") for number, one in enumerate(happened))
    return fill(ledger, named, (*policies, *policies), TARGETS.values())


egress = partial(reported, name="egress")


def forge(ledger: Ledger, statement: str) -> Ledger:
    with ledger.writing() as connection:
        connection.execute(statement)
    return ledger


SOUND = (
    went("internal", "cn"),
    went("internal+pii", "us"),
    went("internal+pii", "us", outcome="server_error"),
    went("internal+pii", "cn", sent="internal", redacted=True),
    went("internal+eu", "eu", region_verified=True),
    went("internal+secret", "home"),
    went("internal+secret", ""),
    went("internal", "ends", at_ms=EXPIRES - 1),
)


def test_each_row_says_where_a_class_went_and_by_whose_word(ledger: Ledger) -> None:
    report = egress(send(ledger, *SOUND))
    names = ("class", "sent_as", "target", "entity", "jurisdiction", "region", "region_is", "redacted")
    counts = ("requests", "attempts", "refused", "input_tokens", "unchecked", "violations")
    rows = json.loads(as_json(report))["rows"]
    assert [[row[name] for name in (*names, *counts)] for row in rows] == data(__file__, "egress_sound.yaml")
    assert totals(report, *counts) == (8, 7, 1, 600, 0, 0)
    assert (report.sound, report.below) == (True, ())
    assert "7 attempts checked again" in report.note
    assert "0 violations" in report.note


def test_it_counts_only_its_window(ledger: Ledger) -> None:
    send(ledger, *SOUND, went("internal", "us", at_ms=MONDAY_MS - 10))
    document = json.loads(as_json(egress(ledger, until="2026-11-02")))
    assert [row["target"] for row in document["rows"]] == ["us"]
    assert (document["sound"], document["totals"]["attempts"]) == (True, 1)
    assert egress(ledger, since="2026-11-02T00:00:05").total("requests") == 0


@each_row("table, change, request_id, rule", data(__file__, "egress.yaml"))
def test_a_forged_row_is_a_violation(new_ledger: Make, table: str, change: str, request_id: str, rule: str) -> None:
    key = "id" if table == "requests" else "request_id"
    statement = f"UPDATE live_{table} SET {change} WHERE {key} = '{request_id}'"  # noqa: S608 - of this file
    broken = egress(forge(send(new_ledger(), *SOUND), statement))
    assert (broken.sound, broken.total("violations")) == (False, 1)
    (below,) = broken.below
    assert below.column("request") == (request_id,)
    assert rule in str(below.column("rule")[0])
    assert "1 violation." in broken.note


def test_of_rows_that_are_alike_only_those_that_broke_a_rule_are_named(ledger: Ledger) -> None:
    broken = egress(send(ledger, *(went("internal", "ends", at_ms=EXPIRES - 5 + number) for number in range(10))))
    assert totals(broken, "violations", "attempts") == (5, 10)
    assert broken.below[0].column("request") == tuple(f"r{number:06}" for number in range(5, 10))


def test_what_cannot_be_checked_is_never_counted_as_fine(ledger: Ledger) -> None:
    other = in_force("fedcba9876543210", "internal", CLASSES, TARGETS)
    broken = PolicyInForce("ffffffffffffffff", b'{"file": "x"}')
    unknown = (went("pii", "cn", policy=one) for one in (other, broken))
    send(ledger, went("internal", "us"), went("pii", "cn"), *unknown, policies=(POLICY, broken))
    checked = egress(forge(ledger, "UPDATE live_attempts SET classes = '' WHERE request_id = 'r000001'"))
    assert checked.sound
    assert totals(checked, "attempts", "unchecked") == (4, 3)
    assert "1 attempt checked again" in checked.note
    reasons = ("its policy is not in the ledger", "it was written before classes were")
    for why in (*reasons, "its policy can't be read by this version"):
        assert f"1 can't be checked: {why}." in checked.note


def test_requests_whose_attempts_were_never_written_are_told(ledger: Ledger) -> None:
    forge(send(ledger, *SOUND), "UPDATE live_requests SET state = 'recovered' WHERE id = 'r000000'")
    forge(ledger, "DELETE FROM live_attempts WHERE request_id = 'r000000'")
    assert "1 request in progress, or lost with the gateway" in egress(ledger).note


def test_each_row_is_judged_by_the_policy_of_its_own_time(ledger: Ledger) -> None:
    """The policy became stricter, then the same file met another catalog."""
    strict = in_force("file", "internal", {**CLASSES, "internal": Requirements(jurisdictions_not=("CN",))}, TARGETS)
    moved = structs.replace(TARGETS["cn"], provider=structs.replace(TARGETS["cn"].provider, jurisdiction="SG"))
    elsewhere = in_force("file", "internal", dict(read(strict.document).classes), {"cn": moved})
    policies = (POLICY, strict, elsewhere)
    assert len({policy.hash for policy in policies}) == 3
    broken = egress(send(ledger, *(went("internal", "cn", policy=policy) for policy in policies), policies=policies))
    assert broken.below[0].column("request") == ("r000001",)
    assert broken.total("attempts") == 3


def test_a_target_that_was_resting_was_sent_nothing(ledger: Ledger) -> None:
    send(ledger, went("internal", "us", outcome="circuit_open"), went("internal", "cn"))
    assert egress(ledger).column("target") == ("cn",)


def test_a_document_holds_what_the_rule_needs_and_no_secret(ledger: Ledger) -> None:
    assert b"hidden" not in POLICY.document
    assert in_force("0123456789abcdef", "internal", dict(CLASSES), dict(TARGETS)) == POLICY
    send(ledger)
    assert found(ledger, "SELECT hash, adopted_ms FROM policies") == [{"hash": POLICY.hash, "adopted_ms": MONDAY_MS}]
    with ledger.reading() as connection:
        past = read(documents(connection)[POLICY.hash])
    for name, place in TARGETS.items():
        kept = past.targets[name]
        for field in ("terms", "region"):
            assert getattr(kept, field) == getattr(place, field)
        assert (kept.model.licence, kept.provider.local) == (place.model.licence, place.provider.local)
    assert past.classes == CLASSES


def test_every_demand_survives_its_document() -> None:
    every = Requirements.model_validate(
        {
            **{"rank": 3, "block": True, "local_only": True, "regions": ("eu",), "jurisdictions_not": ("CN",)},
            **{"providers": ("a",), "training": "never", "retention_days_max": 0, "baa": True, "tools": "none"},
            **{"licence": LicenceDemands(uses=(LicensedUse.COMMERCIAL, LicensedUse.TRAIN_ON_OUTPUTS), users=5)},
            **{"redact": Redact.REMOTE, "redacted_to": "internal", "thinking_cap": 7, "min_pass_rate": 0.9},
            **{"failure_cost_usd": Decimal("0.25"), "max_cost_usd": Decimal("0.01"), "deadline_ms": 1_000},
        }
    )
    assert all(getattr(every, name) != getattr(Requirements(), name) for name in Requirements.model_fields)
    assert read(in_force("f", "internal", {"every": every}, {}).document).classes == {"every": every}
