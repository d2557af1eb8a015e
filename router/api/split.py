"""The body of a split → the child that it asks for."""

from decimal import Decimal
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from router.errors import ClientError
from router.report.standing import Pot
from router.types.account import Account, Child, Unit
from router.types.ids import new_id
from router.types.money import NANO_PER_USD
from router.types.request import Caller

DAY_S = 86_400
USUAL_LIFE_S = 31 * DAY_S
"""Of a child whose maker says nothing else: what is forgotten comes back."""
LONGEST_LIFE_S = 3_660 * DAY_S
MOST_USD = Decimal(10**9)
MOST_TOKENS = 10**15
_PLACES = 12
"""Decimals of an amount: what is below a nano-USD is not given."""
Body = TypeVar("Body")


class Split(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a split: one of the limits, in the parent's unit."""

    limit_usd: Decimal | None = None
    limit_thinking_tokens: int | None = None
    expires_in_s: int | None = None
    session: Annotated[str, Meta(min_length=1, max_length=256)] = ""
    """Whose pot is split, where the budget has one for each session; else `x-lowpass-session` says."""


class NewLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a PATCH: one of the limits, in the budget's unit; null gives the policy's limit back."""

    limit_usd: Decimal | UnsetType | None = UNSET
    limit_thinking_tokens: int | UnsetType | None = UNSET
    expires_in_s: Annotated[int, Meta(ge=1, le=LONGEST_LIFE_S)] | None = None
    """After so long the policy's limit counts again."""


def read(body: bytes, kind: type[Body]) -> Body:
    """Raises a 400 `ClientError`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        unknown = what.removeprefix("Object contains unknown field `").rstrip("`") if "unknown" in what else ""
        raise wrong(path.rstrip("`") or unknown or None, f"{what}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(None, f"The body is not JSON: {error}.") from None


def child_of(pot: Pot, wanted: Split, caller: Caller, now: int) -> Child:
    """As it is asked for; what the parent has left is not known here. Raises a 400 `ClientError`."""
    account, above = pot.account, pot.child.replaces if pot.child is not None else ()
    if pot.child is not None and not pot.child.open_at(now):
        raise wrong("id", f"'{account.id}' is closed: nothing can be split off any more.")
    return Child(
        id=new_id(),
        parent=account.id,
        parent_window_ms=account.window_start_ms,
        replaces=(*above, account.id),
        unit=account.unit,
        limit=_limit(account, wanted),
        created_ms=now,
        expires_at_ms=_end(account, wanted, now),
        key=caller.id,
        team=caller.team,
    )


def new_limit(pot: Pot, wanted: NewLimit) -> int | None:
    """In the account's unit; None: the policy's own. Raises a 400 `ClientError`."""
    usd, thinking = wanted.limit_usd, wanted.limit_thinking_tokens
    if usd is UNSET and thinking is UNSET:
        raise wrong("limit_usd", "Send limit_usd or limit_thinking_tokens; null gives the policy's limit back.")
    if usd is None or thinking is None:
        return None
    given = Split(
        limit_usd=None if usd is UNSET else usd, limit_thinking_tokens=None if thinking is UNSET else thinking
    )
    return _limit(pot.account, given)


def _limit(account: Account, wanted: Split) -> int:
    """In the account's unit."""
    right, other = "limit_usd", "limit_thinking_tokens"
    if account.unit is Unit.THINKING:
        right, other = other, right
    if getattr(wanted, other) is not None:
        raise wrong(other, f"'{account.id}' counts {account.unit}: send {right}.")
    if account.unit is Unit.THINKING:
        return _tokens(wanted.limit_thinking_tokens)
    return _nano(wanted.limit_usd)


def _tokens(amount: int | None) -> int:
    if amount is None or not 0 < amount <= MOST_TOKENS:
        raise wrong("limit_thinking_tokens", f"Send a whole number of tokens from 1 to {MOST_TOKENS}.")
    return amount


def _nano(amount: Decimal | None) -> int:
    if amount is None or not amount.is_finite() or not 0 < amount <= MOST_USD or amount != round(amount, _PLACES):
        raise wrong("limit_usd", f"Send an amount in USD above 0, up to {MOST_USD}, with at most {_PLACES} decimals.")
    nano = int(amount * NANO_PER_USD)
    if nano == 0:
        raise wrong("limit_usd", "Send at least 0.000000001 USD.")
    return nano


def _end(account: Account, wanted: Split, now: int) -> int:
    """Not after the parent's own end, nor after its window's."""
    life_s = USUAL_LIFE_S if wanted.expires_in_s is None else wanted.expires_in_s
    if not 0 < life_s <= LONGEST_LIFE_S:
        raise wrong("expires_in_s", f"Send a whole number of seconds from 1 to {LONGEST_LIFE_S}.")
    ends = (now + life_s * 1000, account.resets_at_ms, account.expires_at_ms)
    return min(end for end in ends if end is not None)


def wrong(param: str | None, message: str) -> ClientError:
    return ClientError(400, "invalid_request_error", message, param=param)
