"""The egress report: where requests went, and that no row can break the policy of its time without being named."""

import asyncio
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest
from msgspec import Struct, structs

from router.decide.in_force import InForce, in_force, read
from router.decide.requirements import LicenceDemands, Redact, Requirements, Use
from router.ledger.ledger import Ledger
from router.ledger.policies import adopted, documents
from router.ledger.write import Outcome, birth, settle
from router.report.egress import egress
from router.report.proof import NO_CLASSES, NO_POLICY, UNREADABLE
from router.report.render import as_json
from router.report.report import Report
from router.types.account import Amount
from router.types.attempt import Attempt
from router.types.classification import Classification
from router.types.plan import Decision, Plan
from router.types.price import Cost, CostSource
from router.types.request import Caller, Endpoint, Request
from router.types.secret import Secret
from router.types.target import Licence, Model, Provider, Target, Terms, Wire
from router.types.task import Task
from router.types.usage import Usage
from tests.ledger.books import found

NOW = 1_793_577_600_000
EXPIRES = NOW + 1_000
USAGE = Usage(input_uncached=100, output_visible=20)


def target(name: str, law: str, region: str = "", *, local: bool = False, **terms: Any) -> Target:
    model = Model(id="m", name="m", context=1, max_output=1, capabilities=frozenset(), licence=Licence(id="mit"))
    provider = Provider(
        id=f"by-{name}", wire=Wire.ANTHROPIC, base_url="", entity=f"{name} Ltd", jurisdiction=law, local=local
    )
    return Target(
        id=name,
        model=model,
        provider=provider,
        base_url="https://user:hidden-url@x.example/v1",
        api_key=Secret("hidden-key"),
        headers={"x-team": "hidden-header"},
        region=region,
        terms=Terms(**terms),
    )


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


class Went(Struct, frozen=True):
    """One request, and one attempt of it."""

    classes: str
    target: str
    sent: str = ""
    redacted: bool = False
    region: str | None = None
    at_ms: int = NOW
    policy: InForce = POLICY
    outcome: str = "ok"
    error: str | None = None

    @property
    def held(self) -> frozenset[str]:
        return frozenset(self.classes.split("+"))


def write(ledger: Ledger, happened: Iterable[Went], policies: Iterable[InForce] = (POLICY,)) -> None:
    async def work() -> None:
        journal = ledger.open_journal()
        for policy in (*policies, *policies):
            adopted(journal, policy.hash, NOW, policy.document)
        for number, went in enumerate(happened):
            identifier = f"r{number:06}"
            ranked = max(went.held, key=tuple(CLASSES).index)
            seen = Classification(data_class=ranked, classes=went.held, difficulty=0, task=Task.CHAT)
            plan = Plan(route="auto", strategy="ordered", steps=())
            decided = Decision(id=identifier, requested="auto", policy=went.policy.hash, classification=seen, plan=plan)
            request = Request(id=identifier, endpoint=Endpoint.CHAT, model="auto", body={}, prompt_bytes=1)
            birth(journal, request, Caller(), decided, Amount(), went.at_ms)
            attempts = (attempt(went),) if went.target else ()
            settle(journal, identifier, Outcome(status=403 if went.error else 200, error=went.error, attempts=attempts))
        await journal.committed()
        await journal.end()

    asyncio.run(work())


def attempt(went: Went) -> Attempt:
    place = TARGETS[went.target]
    return Attempt(
        target=place,
        outcome=went.outcome,
        started_ms=went.at_ms,
        total_ms=1,
        usage=USAGE if went.outcome == "ok" else None,
        cost=Cost(0, CostSource.PRICED, "test"),
        classes=frozenset(went.sent.split("+")) if went.sent else went.held,
        redacted=went.redacted,
        region=place.region if went.region is None else went.region,
        region_verified=went.region is not None,
    )


def report(ledger: Ledger, since: int | None = None, until: int | None = None) -> Report:
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return egress(connection, since, until)


def forge(ledger: Ledger, statement: str) -> None:
    with ledger.writing() as connection:
        connection.execute(statement)


def rules(found: Report) -> list[str]:
    return [str(rule) for below in found.below for rule in below.column("rule")]


def lines(found: Report) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(as_json(found))["rows"]
    return rows


SOUND = (
    Went("internal", "cn"),
    Went("internal+pii", "us"),
    Went("internal+pii", "us", outcome="server_error"),
    Went("internal+pii", "cn", sent="internal", redacted=True),
    Went("internal+eu", "eu", region="eu"),
    Went("internal+secret", "home"),
    Went("internal+secret", "", error="no_eligible_target"),
    Went("internal", "ends", at_ms=EXPIRES - 1),
)


def test_each_row_says_where_a_class_went_and_by_whose_word(ledger: Ledger) -> None:
    write(ledger, SOUND)
    report_ = report(ledger)
    names = ("class", "sent_as", "target", "entity", "jurisdiction", "region", "region_is", "redacted")
    counts = ("requests", "attempts", "refused", "input_tokens", "unchecked", "violations")
    assert [tuple(row[name] for name in (*names, *counts)) for row in lines(report_)] == [
        ("eu", "eu,internal", "eu", "eu Ltd", "IE", "eu", "verified", "no", 1, 1, 0, 100, 0, 0),
        ("internal", "internal", "cn", "cn Ltd", "CN", "cn", "asserted", "no", 1, 1, 0, 100, 0, 0),
        ("internal", "internal", "ends", "ends Ltd", "IE", "eu", "asserted", "no", 1, 1, 0, 100, 0, 0),
        ("pii", "internal", "cn", "cn Ltd", "CN", "cn", "asserted", "yes", 1, 1, 0, 100, 0, 0),
        ("pii", "internal,pii", "us", "us Ltd", "US", "us", "asserted", "no", 2, 2, 0, 100, 0, 0),
        ("secret", None, None, None, None, None, None, None, 1, 0, 1, None, 0, 0),
        ("secret", "internal,secret", "home", "home Ltd", None, None, "local", "no", 1, 1, 0, 100, 0, 0),
    ]
    assert [report_.total(name) for name in counts] == [8, 7, 1, 600, 0, 0]
    assert (report_.sound, report_.below) == (True, ())
    assert "7 attempts checked again" in report_.note
    assert "0 violations" in report_.note


def test_it_reads_as_a_table_and_as_json_and_counts_only_its_window(ledger: Ledger) -> None:
    write(ledger, (*SOUND, Went("internal", "us", at_ms=NOW - 10)))
    document = json.loads(as_json(report(ledger, until=NOW)))
    assert [row["target"] for row in document["rows"]] == ["us"]
    assert (document["sound"], document["totals"]["attempts"]) == (True, 1)
    assert report(ledger, since=NOW + 5_000).total("requests") == 0


FORGED = {
    "a target that may not see the class": ("target = 'cn'", "r000001", "is under the law of CN"),
    "a target of another region": ("target = 'us', region = 'us'", "r000004", "its region is us"),
    "a remote target": ("target = 'us', region = 'us', region_source = 'asserted'", "r000005", "it is not local"),
    "a target that nobody had": ("target = 'nowhere'", "r000000", "no target nowhere"),
    "fewer classes": ("classes = 'internal'", "r000001", "was sent without that class"),
    "a class that nobody had": ("classes = 'public,pii,internal'", "r000001", "no class public"),
    "not even the default": ("classes = 'pii'", "r000001", "was sent without"),
    "no redaction": ("redacted = 0", "r000003", "was not redacted"),
    "redaction where none is allowed": ("redacted = 1, classes = 'internal'", "r000005", "may not be redacted"),
    "a region that the policy did not state": ("region = 'eu'", "r000001", "its region is said to be eu"),
    "a region that the provider denies": ("region = 'us', region_source = 'mismatch'", "r000004", "region is us"),
    "later than the evidence holds": (f"started_ms = {EXPIRES}", "r000007", "expired"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_row_is_a_violation(ledger: Ledger, name: str) -> None:
    change, request, rule = FORGED[name]
    write(ledger, SOUND)
    forge(ledger, f"UPDATE attempts SET {change} WHERE request_id = '{request}'")  # noqa: S608 - of this file
    broken = report(ledger)
    assert (broken.sound, broken.total("violations")) == (False, 1)
    (below,) = broken.below
    assert below.column("request") == (request,)
    assert rule in str(below.column("rule")[0])
    assert "1 violation." in broken.note


@pytest.mark.parametrize(
    ("change", "rule"),
    [("classes = 'internal'", "not among those it held"), ("data_class = 'internal', classes = 'internal,eu'", "eu")],
)
def test_a_forged_request_is_a_violation(ledger: Ledger, change: str, rule: str) -> None:
    write(ledger, SOUND)
    forge(ledger, f"UPDATE requests SET {change} WHERE id = 'r000001'")  # noqa: S608 - of this file
    assert [rule in found for found in rules(report(ledger))] == [True]


def test_of_rows_that_are_alike_only_those_that_broke_a_rule_are_named(ledger: Ledger) -> None:
    """Evidence ended in their midst."""
    write(ledger, [Went("internal", "ends", at_ms=EXPIRES - 5 + number) for number in range(10)])
    broken = report(ledger)
    assert broken.total("violations") == 5
    assert broken.below[0].column("request") == tuple(f"r{number:06}" for number in range(5, 10))
    assert broken.total("attempts") == 10


def test_what_cannot_be_checked_is_never_counted_as_fine(ledger: Ledger) -> None:
    other = in_force("fedcba9876543210", "internal", CLASSES, TARGETS)
    broken = InForce("ffffffffffffffff", b'{"file": "x"}')
    happened = [Went("internal", "us"), Went("pii", "cn"), *(Went("pii", "cn", policy=one) for one in (other, broken))]
    write(ledger, happened, (POLICY, broken))
    forge(ledger, "UPDATE attempts SET classes = '' WHERE request_id = 'r000001'")
    checked = report(ledger)
    assert checked.sound
    assert (checked.total("attempts"), checked.total("unchecked")) == (4, 3)
    assert "1 attempt checked again" in checked.note
    for why in (NO_POLICY, NO_CLASSES, UNREADABLE):
        assert f"1 can't be checked: {why}." in checked.note


def test_requests_whose_attempts_were_never_written_are_told(ledger: Ledger) -> None:
    write(ledger, SOUND)
    forge(ledger, "UPDATE requests SET state = 'recovered' WHERE id = 'r000000'")
    forge(ledger, "DELETE FROM attempts WHERE request_id = 'r000000'")
    assert "1 request in progress, or lost with the gateway" in report(ledger).note


def test_each_row_is_judged_by_the_policy_of_its_own_time(ledger: Ledger) -> None:
    """The policy became stricter, then the same file met another catalog."""
    strict = in_force("file", "internal", {**CLASSES, "internal": Requirements(jurisdictions_not=("CN",))}, TARGETS)
    moved = structs.replace(TARGETS["cn"], provider=structs.replace(TARGETS["cn"].provider, jurisdiction="SG"))
    elsewhere = in_force("file", "internal", dict(read(strict.document).classes), {"cn": moved})
    assert len({POLICY.hash, strict.hash, elsewhere.hash}) == 3
    happened = [Went("internal", "cn", policy=policy) for policy in (POLICY, strict, elsewhere)]
    write(ledger, happened, (POLICY, strict, elsewhere))
    broken = report(ledger)
    assert broken.below[0].column("request") == ("r000001",)
    assert broken.total("attempts") == 3


def test_a_target_that_was_resting_was_sent_nothing(ledger: Ledger) -> None:
    write(ledger, [Went("internal", "us", outcome="circuit_open"), Went("internal", "cn")])
    assert [row["target"] for row in lines(report(ledger))] == ["cn"]


def test_a_document_holds_what_the_rule_needs_and_no_secret(ledger: Ledger) -> None:
    assert b"hidden" not in POLICY.document
    assert in_force("0123456789abcdef", "internal", dict(CLASSES), dict(TARGETS)) == POLICY
    write(ledger, ())
    assert found(ledger, "SELECT hash, adopted_ms FROM policies") == [{"hash": POLICY.hash, "adopted_ms": NOW}]
    with ledger.reading() as connection:
        past = read(documents(connection)[POLICY.hash])
    for name, place in TARGETS.items():
        kept = past.targets[name]
        assert (kept.terms, kept.region, kept.local, kept.model.licence) == (
            place.terms,
            place.region,
            place.local,
            place.model.licence,
        )
    assert past.classes == CLASSES


def test_every_demand_survives_its_document() -> None:
    every = Requirements(
        rank=3,
        block=True,
        local_only=True,
        regions=("eu",),
        jurisdictions_not=("CN",),
        providers=("a",),
        training="never",
        retention_days_max=0,
        baa=True,
        licence=LicenceDemands(uses=(Use.COMMERCIAL, Use.TRAIN_ON_OUTPUTS), users=5),
        redact=Redact.REMOTE,
        redacted_to="internal",
        thinking_cap=7,
        failure_cost_usd=Decimal("0.25"),
        min_pass_rate=0.9,
        max_cost_usd=Decimal("0.01"),
        deadline_ms=1_000,
    )
    assert all(getattr(every, name) != getattr(Requirements(), name) for name in Requirements.model_fields)
    assert read(in_force("f", "internal", {"every": every}, {}).document).classes == {"every": every}
