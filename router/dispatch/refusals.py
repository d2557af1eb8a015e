"""The gateway's own errors for requests that can't be served, in OpenAI's envelope, each with its remedy."""

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any

import msgspec
from msgspec import Raw

from router.budget.loops import LoopKind, Tripped
from router.errors import TABLE, ClientError
from router.types.account import Account, Refused, Unit
from router.types.attempt import Attempt, ErrorKind, Failure
from router.types.clock import iso
from router.types.decision import Plan
from router.types.price import usd_json, usd_text

_NO_RETRY = (("x-should-retry", "false"),)
_START_S = 2
"""Time in seconds after which a client is told to retry while an engine starts."""
_AGAIN_SOON = (("x-should-retry", "true"), ("retry-after", "1"))
_RATE_HEADERS = {
    Unit.REQUESTS: ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    Unit.TOKENS: ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
}


def _as_upstream(kind: ErrorKind, message: str, **more: Any) -> ClientError:
    """Returns an error with the status, code and type of an upstream failure of this kind."""
    rule = TABLE[kind]
    return ClientError(rule.status, rule.code, message, type=rule.type, **more)


def unknown_model(model: str, known: Iterable[str]) -> ClientError:
    message = (
        f"The model '{model}' does not exist here: `aliases` of the policy can name it. Known: {', '.join(known)}."
    )
    return ClientError(404, "model_not_found", message, param="model")


def no_target(
    plan: Plan, data_class: str, rest_s: Callable[[str], float], limited: Callable[[str], bool]
) -> ClientError:
    """Returns 503 if a target is resting after failures (`rest_s`: seconds left), or its engine is down or too busy;
    429 if all that rest have reached their rate limit (`limited`); a 4xx if no target may serve the request."""
    reasons = [
        {"target": dropped.target, "reason": dropped.reason, "detail": dropped.detail} for dropped in plan.dropped
    ]
    extra: dict[str, object] = {"targets": reasons}
    rests = [dropped.target for dropped in plan.dropped if dropped.reason == "circuit_open"]
    if rests:
        kind = ErrorKind.RATE_LIMITED if all(map(limited, rests)) else ErrorKind.CIRCUIT_OPEN
        why = "has reached its rate limit" if kind is ErrorKind.RATE_LIMITED else "is resting after failures"
        message = f"Every target of route '{plan.route}' that may serve this request {why}."
        again = (("retry-after", str(max(1, ceil(min(map(rest_s, rests)))))),)
        return _as_upstream(kind, message, extra=extra, headers=again)
    if down := [dropped for dropped in plan.dropped if dropped.reason in ("engine_down", "saturated")]:
        # A queue has an expected wait; a starting engine has none.
        busy = [queue.wait_ms for queue in plan.queued if any(dropped.target == queue.target for dropped in down)]
        after = max(1, ceil(min(busy) / 1000)) if busy else _START_S
        listed = "; ".join(f"{dropped.target}: {dropped.detail}" for dropped in down)
        message = f"No engine of route '{plan.route}' can begin this request in time. {listed}. Try again in {after} s."
        again = (("retry-after", str(after)),)
        return ClientError(503, "saturated", message, type="api_error", extra=extra, headers=again)
    if reasons and all(reason["reason"] == "unpriced" for reason in reasons):
        message = "No target of this route has a price; add one, or set `unpriced` to the rates to charge."
        return ClientError(403, "unpriced_model", message, type="permission_error", extra=extra)
    if reasons and all(reason["reason"] == "context" for reason in reasons):
        message = f"The prompt is too long for every target of route '{plan.route}'."
        return _as_upstream(ErrorKind.CONTEXT_LENGTH, message, extra=extra)
    listed = "; ".join(f"{reason['target']}: {reason['detail']}" for reason in reasons)
    message = f"No target of route '{plan.route}' may serve this request (class {data_class}). {listed}"
    return ClientError(403, "no_eligible_target", message, type="permission_error", extra=extra, headers=_NO_RETRY)


def budget_exceeded(refused: Refused, status: int) -> ClientError:
    """Returns the error for a full budget; asks to retry soon if only requests in progress stand in the way."""
    account, unit, left = refused.account, refused.account.unit, max(0, refused.left)
    amounts = {"limit": account.limit, "spent": refused.spent, "held": refused.held, "needed": refused.needed}
    budget: dict[str, object] = {
        "id": account.budget,
        "scope": account.scope,
        "value": account.value or None,
        "unit": unit,
        **{name: amount_json(unit, amount) for name, amount in amounts.items()},
        "resets_at": None if account.resets_at_ms is None else iso(account.resets_at_ms),
    }
    whose = f" of {account.scope} '{account.value}'" if account.value else ""
    message = (
        f"Budget '{account.budget}'{whose} has {_amount(unit, left)} left of {_amount(unit, account.limit)};"
        f" this request needs at least {_amount(unit, refused.needed)}. {_remedy(refused)}"
    )
    headers = _AGAIN_SOON if refused.passing else _NO_RETRY
    extra: dict[str, object] = {"budget": budget}
    return ClientError(status, "budget_exceeded", message, type="budget_exceeded", extra=extra, headers=headers)


def rate_limited(refused: Refused, rates: Iterable[tuple[Account, int]], now_ms: int) -> ClientError:
    """Returns an error like OpenAI's rate limits, on which its clients wait and retry. `rates`: see `rate_headers`."""
    account = refused.account
    named = {Unit.REQUESTS: "requests a minute", Unit.TOKENS: "tokens a minute", Unit.PARALLEL: "requests at once"}
    after_s = 1 if account.resets_at_ms is None else max(1, ceil((account.resets_at_ms - now_ms) / 1000))
    message = (
        f"Key '{account.value}' may have {account.limit} {named[account.unit]}; {max(0, refused.left)} left, this"
        f" request needs {refused.needed}. Try again in {after_s} s."
    )
    headers = (("retry-after", str(after_s)), *rate_headers(rates, now_ms))
    return ClientError(429, "rate_limit_exceeded", message, type=account.unit.value, headers=headers)


def rate_headers(rates: Iterable[tuple[Account, int]], now_ms: int) -> list[tuple[str, str]]:
    """Returns OpenAI's rate headers: limit, remainder and time until the reset of requests and tokens."""
    headers: list[tuple[str, str]] = []
    for account, left in rates:
        if account.resets_at_ms is not None:
            reset = f"{max(0, account.resets_at_ms - now_ms) / 1000:g}s"
            headers += zip(_RATE_HEADERS[account.unit], (str(account.limit), str(left), reset), strict=True)
    return headers


def amount_json(unit: Unit, amount: int) -> Raw:
    """Returns an exact JSON number: USD, or a whole number of tokens or requests."""
    return Raw(usd_json(amount) if unit is Unit.USD else b"%d" % amount)


def _amount(unit: Unit, amount: int) -> str:
    return f"${usd_text(amount)}" if unit is Unit.USD else f"{amount} thinking tokens"


def _remedy(refused: Refused) -> str:
    if refused.passing:
        return "Requests in progress hold the rest: try again once they are done."
    less = "max_completion_tokens" if refused.account.unit is Unit.USD else "reasoning_effort"
    wait = "" if refused.account.resets_at_ms is None else ", wait for the reset"
    return f"Lower {less}{wait}, or raise the limit."


def upstream_failed(failure: Failure, attempts: Sequence[Attempt]) -> ClientError:
    """Returns the error after the last attempt failed too; 429 if the target is resting for its rate limit."""
    limited = failure.kind is ErrorKind.CIRCUIT_OPEN and failure.status == TABLE[ErrorKind.RATE_LIMITED].status
    kind = ErrorKind.RATE_LIMITED if limited else failure.kind
    tried = [{"target": row.target.id, "outcome": row.outcome, "status": row.status} for row in attempts]
    headers = failure.limits if failure.kind is ErrorKind.RATE_LIMITED else ()
    if failure.retry_after_s is not None:
        headers = ("retry-after", str(ceil(failure.retry_after_s))), *headers
    message = failure.message if TABLE[kind].status == 400 else f"No target answered. Last: {failure.message}"
    extra = {"kind": failure.kind, "attempts": tried}
    return _as_upstream(kind, message, param=failure.param, extra=extra, headers=headers)


def stream_error(failure: Failure) -> bytes:
    """Returns the SSE event that ends a broken stream; OpenAI's clients raise an error on it."""
    rule = TABLE[failure.kind]
    error = {"message": failure.message, "type": rule.type, "param": None, "code": rule.code, "kind": failure.kind}
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"


def unknown_budget(name: str, known: Iterable[str]) -> ClientError:
    message = f"There is no budget '{name}' that this key may use. Known: {', '.join(known)}."
    return ClientError(400, "invalid_request_error", message, param="x-lowpass-budget")


def store_down() -> ClientError:
    message = "The store of the budgets does not answer, so nothing can be held; no request is sent until it does."
    return ClientError(503, "budgets_unavailable", message, type="api_error")


def loop_detected(tripped: Tripped) -> ClientError:
    """Returns the error for a tripped loop breaker. A retry is useless before `until`, or at all if that is null."""
    money = tripped.kind is LoopKind.SPEND_SPIKE
    until = None if tripped.until_ms is None else iso(tripped.until_ms)
    loop: dict[str, object] = {
        "kind": tripped.kind,
        "scope": tripped.scope,
        "subject": tripped.subject,
        "seen": amount_json(Unit.USD, tripped.seen) if money else tripped.seen,
        "limit": amount_json(Unit.USD, tripped.limit) if money else tripped.limit,
        "unit": "usd" if money else "requests",
        "at": iso(tripped.at_ms),
        "until": until,
    }
    ends = "Begin a new session." if until is None else f"It may go on after {until}."
    message = f"Stopped {tripped.scope} '{tripped.subject}': {tripped.reason}. {ends}"
    extra: dict[str, object] = {"loop": loop}
    if tripped.kind is LoopKind.SESSION_TURNS:
        return ClientError(429, "turn_limit", message, type="rate_limit_error", extra=extra, headers=_NO_RETRY)
    return ClientError(429, "loop_detected", message, type="rate_limit_error", extra=extra, headers=_NO_RETRY)


def ledger_down() -> ClientError:
    message = "The ledger can't be written, so nothing can be charged; no request is sent until it can."
    return ClientError(503, "ledger_unavailable", message, type="api_error")
