"""Writes requests, attempts, decisions and incidents to the journal."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec import structs

from router.types.account import INCIDENT, LEASE_MS, Amount, Journal, Refused, Unit, Value
from router.types.attempt import Attempt, Usage
from router.types.clock import new_id
from router.types.decision import Decision
from router.types.price import SERVED, usd_text
from router.types.request import Caller, Request
from router.types.tables import patterns, table
from router.types.target import SNAPSHOT

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["write"]

# The row of an attempt, with everything that its price depends on.

LONGEST_NAME = 128
_NAMED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@+-"
BUCKETS = Usage.__struct_fields__[: Usage.__struct_fields__.index("units")]
"""Columns of token counts, named like the fields of `Usage`."""
_INPUT = [name for name in BUCKETS[1:] if name.startswith(("input", "cache"))]
_OUTPUT = [name for name in BUCKETS if name.startswith("output") and name != "output_visible"]
INPUT_TOKENS = " + ".join(("input_uncached", *(f"COALESCE({name}, 0)" for name in _INPUT)))
OUTPUT_TOKENS = " + ".join(("output_visible", *(f"COALESCE({name}, 0)" for name in _OUTPUT)))
"""SQL for all output tokens of an attempt (`INPUT_TOKENS`: input tokens); NULL if its usage is unknown."""
_FIRST_COLUMNS, _LAST_COLUMNS = table("ledger/data/named.yaml")["columns"]
_COLUMNS = (*_FIRST_COLUMNS, *BUCKETS, *_LAST_COLUMNS)
INSERT = f"INSERT INTO live_attempts ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_NO_USAGE: tuple[Value, ...] = (*(None for _ in BUCKETS), "", None, None, "")


def attempt_row(request_id: str, number: int, attempt: Attempt) -> tuple[Value, ...]:
    usage, cost, target = attempt.usage, attempt.cost, attempt.target
    region_source = "asserted" if target.region else ""
    if attempt.region_verified:
        region_source = "verified" if attempt.region == target.region else "mismatch"
    usage_columns, verdicts = _NO_USAGE, attempt.verdicts
    if usage is not None:
        units, tier = _json(usage.units) if usage.units else "", usage.service_tier
        sources = usage.source.value, usage.reasoning_source.value
        usage_columns = (*structs.astuple(usage)[: len(BUCKETS)], units, *sources, plain(tier) if tier else "")
    scores = [verdict.score for verdict in verdicts if verdict.score is not None] if verdicts else ()
    asked = request_id, number, target.id, target.model.id, target.provider.id, plain(attempt.model_served)
    ended = str(attempt.outcome), attempt.status, plain(attempt.finish_reason), int(attempt.answered), attempt.thinking
    times = attempt.started_ms, attempt.total_ms, attempt.first_ms
    region = attempt.region or (usage.region_served if usage else "") or target.region
    violations = _json(usage.violations) if usage and usage.violations else ""
    price = cost.nano, cost.source.value, cost.own, cost.price_version, int(cost.flagged)
    privacy = joined(attempt.classes), int(attempt.redacted), region_source
    checks = _json({verdict.verifier: verdict.score for verdict in verdicts}) if verdicts else ""
    judged = attempt.role, int(attempt.passed_over), min(scores, default=None), checks
    beside = region, violations, *price, *privacy, *judged, cost.thinking, cost.saved
    return *asked, *ended, *times, *usage_columns, *beside


@lru_cache(4096)
def joined(classes: frozenset[str]) -> str:
    """Returns classes as stored in a column; their names have no commas."""
    return ",".join(sorted(classes))


def usage_of(row: Mapping[str, str | int | None]) -> Usage:
    """Returns the usage stored in the columns of a row, from which its cost was computed."""
    counts = {name: row[name] for name in BUCKETS if row[name] is not None}
    written = {"units": row["units"] or "{}", "violations": row["violations"] or "[]"}
    named = {name: msgspec.json.decode(str(text)) for name, text in written.items()}
    stated = {"source": row["usage_source"], "service_tier": row["service_tier"], "region_served": row["region"]}
    return msgspec.convert(counts | named | stated, Usage)


@lru_cache(4096)
def plain(name: str) -> str:
    """Returns a name stated by a provider, or "?" for a long or odd text, which may contain parts of a request."""
    return name if len(name) <= LONGEST_NAME and not name.encode().translate(None, _NAMED) else "?"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# Rows of a request: inserted as `held` before anything is sent, and settled once, with attempts and decision.


def insert_held(
    journal: Journal, request: Request, caller: Caller, decision: Decision, held: Amount, now_ms: int, document: bytes
) -> None:
    """Inserts the rows of a new request and its decision. `held`: charge if the process dies before the budget store
    holds anything for the request. `document`: JSON of the decision."""
    limits, known = request.limits, decision.classification
    first = decision.plan.steps[0].target if decision.plan.steps else None
    tags = ",".join((*caller.tags, *limits.tags))
    held_until = now_ms, held.usd, held.thinking, now_ms + LEASE_MS, journal.owner
    asked = request.endpoint.value, request.model, decision.plan.route, int(request.stream)
    sender = caller.id, limits.session, tags
    classified = known.data_class, joined(known.classes), decision.policy, known.task.value, known.difficulty
    # The first target is stored in case the process dies before it settles the request.
    planned = known.app, known.template, first.id if first else None, first.model.id if first else None
    journal.add(_SQL["birth"], (request.id, *held_until, *asked, *sender, *classified, *planned))
    journal.add(_SQL["decision"], (decision.id, now_ms, decision.policy, document.decode()))


def reroute(journal: Journal, decision: Decision, held: Amount, document: bytes) -> None:
    """Updates the rows of an unsettled request that is sent to another route."""
    first = decision.plan.steps[0].target if decision.plan.steps else None
    names = first.id if first else None, first.model.id if first else None
    journal.change(_SQL["reroute"], (decision.plan.route, held.usd, held.thinking, *names, decision.id))
    journal.change(_SQL["decided_anew"], (document.decode(), decision.id))


def renew(journal: Journal, now_ms: int) -> None:
    """Renews the leases of this process; call it several times within `LEASE_MS`."""
    journal.change(_SQL["renew"], (now_ms + LEASE_MS, journal.owner))


def recover(journal: Journal, now_ms: int) -> None:
    """Charges requests of dead processes at their hold. If budgets are in the ledger's file, their store does it."""
    journal.change(f"{_SQL['charge_held']} AND lease_until_ms < ?", (now_ms,))


def lose(journal: Journal, request_id: str) -> None:
    """Charges a request that ended without a settlement at its hold."""
    journal.change(f"{_SQL['charge_held']} AND id = ?", (request_id,))


def settle(
    journal: Journal,
    request_id: str,
    *,
    status: int,
    error: str | None = None,
    attempts: Sequence[Attempt] = (),
    cost: int = 0,
    thinking: int = 0,
    overrun: bool = False,
    lowered: Sequence[str] = (),
    total_ms: int = 0,
    first_ms: int | None = None,
    overhead_us: int | None = None,
) -> None:
    """Settles a request. `status`: the client's HTTP status; `error`: a code, never a message; `cost`: nano-USD;
    `thinking`: tokens charged; `overrun`: whether more was charged than held; `lowered`: what was reduced to fit.

    `overhead_us`: time in µs of `total_ms` in which the gateway was not waiting for a target. It runs from when the
    request was read and its key known until settlement, less the time from the first byte sent to a target to the last
    byte received from it; overlapping calls count once. So it includes our computation and other waits that we cause,
    such as for room in a budget, before a retry or for a verifier, but not the write of this row.
    """
    target = None
    if attempts and attempts[-1].outcome == "ok" and not attempts[-1].passed_over:
        target = attempts[-1].target  # the client received its answer
    tokens_in = tokens_out = 0
    reasoning: int | None = None
    for number, attempt in enumerate(attempts, 1):
        journal.add(INSERT, attempt_row(request_id, number, attempt))
        if (usage := attempt.usage) is not None:
            tokens_in += usage.totals.input
            tokens_out += usage.totals.output
            if usage.output_reasoning is not None:
                reasoning = (reasoning or 0) + usage.output_reasoning
    state, names = "settled" if attempts else "released", (target.id, target.model.id) if target else (None, None)
    charged = cost, thinking, int(overrun), ", ".join(lowered), tokens_in, tokens_out, reasoning
    times = total_ms, first_ms, overhead_us
    journal.change(_SQL["settle"], (state, *names, status, error, *charged, *times, request_id))


def record(journal: Journal, decision_id: str, now_ms: int, policy: str, document: bytes) -> None:
    journal.add(_SQL["decision"], (decision_id, now_ms, policy, document.decode()))


def reclassify(journal: Journal, decision: Decision, document: bytes) -> None:
    """Updates the task, difficulty and decision of a request whose text was classified after its answer."""
    known = decision.classification
    journal.change(_SQL["read"], (known.task.value, known.difficulty, decision.id))
    journal.change(_SQL["decided_anew"], (document.decode(), decision.id))


# Incidents other than those of circuit and loop breakers: an answer from the wrong region, a changed target, impossible
# usage, another model, and an exhausted budget.

REGION_MISMATCH = "region_mismatch"
DRIFT = "drift"
EXHAUSTED = "budget_exceeded"
IMPOSSIBLE_USAGE = "impossible_usage"
OTHER_MODEL = "other_model"


def odd_answers(journal: Journal, attempts: Iterable[Attempt], now_ms: int, rest_s: float) -> None:
    """Records incidents of attempts. Each answer from a wrong region gets one; its target is not used for `rest_s`.

    Impossible usage, and another served model of a different or unknown price, get one per kind, target and hour, with
    the first reason.
    """
    for attempt in attempts:
        target, reasons = attempt.target, {}
        if attempt.region_verified and attempt.region != target.region:
            reason = f"asked for {target.region}, served in {attempt.region}"
            until_ms = now_ms + int(rest_s * 1000)
            journal.add(INCIDENT, (new_id(), now_ms, REGION_MISMATCH, "target", target.id, reason, until_ms))
        if attempt.usage is not None and attempt.usage.violations:
            reasons[IMPOSSIBLE_USAGE] = attempt.usage.violations[0]
        model, served, version = target.model, attempt.model_served or "", attempt.cost.price_version
        price = target.price(served) if version.startswith(SERVED) else None
        if SNAPSHOT.sub("", served) not in ("", model.name) and not target.knows(served):
            priced = version.partition(",")[0].removeprefix(SERVED) if price is not None else model.name
            reasons[OTHER_MODEL] = f"asked for {model.name}, served by {served}, of unknown price: charged as {priced}"
        elif price is not None and not price.equals(model.price):
            reasons[OTHER_MODEL] = f"asked for {model.name}, served by {served} and charged at its price"
        for kind, reason in reasons.items():
            identifier = f"{kind}-{target.id}-{now_ms // 3_600_000}"  # once an hour
            journal.add(INCIDENT, (identifier, now_ms, kind, "target", target.id, reason, now_ms))


def exhausted(journal: Journal, refused: Refused, now_ms: int) -> None:
    """Records that an account had too little left: one incident per account and window, over all gateways.

    A rolling window counts as a new one after its own length.
    """
    account = refused.account
    start, ends = account.window_start_ms, account.resets_at_ms
    window = start if ends is None or account.since_ms == start else start // max(1, ends - start)
    unit = "USD" if account.unit is Unit.USD else "thinking tokens"
    needed, left = (usd_text(n) if unit == "USD" else n for n in (refused.needed, refused.left))
    reason = f"{needed} {unit} needed, {left} {unit} left"
    journal.add(INCIDENT, (f"{EXHAUSTED}-{account.id}-{window}", now_ms, EXHAUSTED, "budget", account.id, reason, ends))
