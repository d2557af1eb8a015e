"""Counters written anew from the ledger, when a server is new or has lost its data; before anything is admitted."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from router.budget.redis.link import Argument, Link
from router.budget.redis.scripts import Keys, answer
from router.types.ids import new_id

REBUILD_S = 20.0
"""For one part of the counters."""
PART = 2_000
KEEP_MS = 400 * 86_400_000
"""A counter written anew stays as long as the longest window, a year, may need it; one of a lifetime for ever."""
RESTORED = "restored"
"""The owner of holds that were written anew: they are recovered, and corrected when their request is settled."""

_Fields = dict[str, int | str]
_log = logging.getLogger(__name__)


class Books(Struct, frozen=True):
    """What the ledger knows of all accounts whose windows may still count, as of one moment."""

    spent: Iterable[tuple[str, int, int]]
    """Account, window start (Unix ms), sum of what was charged."""
    held: Iterable[tuple[str, str, int, int]]
    """Request, account, window start, amount: what is not charged yet."""
    sessions: Mapping[str, Iterable[str]] = {}
    """The fields of each session's hash: what it has seen."""


async def rebuild(link: Link, keys: Keys, script: str, books: Callable[[], Books], lease_ms: int) -> None:
    """`script`: the digest of rebuild.lua. Of several processes one does it. Raises what `answer` raises."""
    patience, link.patience_s = link.patience_s, REBUILD_S
    known = await asyncio.to_thread(books)
    accounts, requests = _fields(known)
    if accounts:
        told = (len(accounts), len(requests))
        _log.warning("Redis has lost its budgets: %d accounts, %d open requests come from the ledger", *told)
    if requests:
        await _own(link, keys, requests, lease_ms)
    hashes = [(keys.accounts + name, _keep(fields), fields) for name, fields in accounts.items()]
    hashes += [(keys.requests + name, "", fields) for name, fields in requests.items()]
    hashes += [(keys.sessions + name, "", dict.fromkeys(fields, 1)) for name, fields in known.sessions.items()]
    me, epoch = new_id(), new_id()
    for part, last in _parts(hashes):
        arguments: list[Argument] = [me, int(REBUILD_S * 1000), epoch if last else ""]
        for _, keep, fields in part:
            arguments += (keep, len(fields), *(value for field in fields.items() for value in field))
        touched = [keys.epoch, keys.lock, *(key for key, _, _ in part)]
        if not await answer(link, "EVALSHA", script, len(touched), *touched, *arguments):
            break
    link.patience_s = patience


def _fields(books: Books) -> tuple[dict[str, _Fields], dict[str, _Fields]]:
    """The hash of every account, and that of every request that holds something."""
    accounts: dict[str, _Fields] = {}
    requests: dict[str, _Fields] = {}
    for account, start, amount in books.spent:
        _add(accounts.setdefault(account, {}), f"s:{start}", amount)
    for request, account, start, amount in books.held:
        _add(accounts.setdefault(account, {}), f"h:{start}", amount)
        requests.setdefault(request, {"o": RESTORED})[f"{start}|{account}"] = amount
    return accounts, requests


def _add(fields: _Fields, field: str, amount: int) -> None:
    fields[field] = int(fields.get(field, 0)) + amount


async def _own(link: Link, keys: Keys, requests: Iterable[str], lease_ms: int) -> None:
    now = await answer(link, "TIME")
    seconds = int(str(now[0])) if isinstance(now, list) else 0
    await answer(link, "SADD", keys.owner(RESTORED), *requests)
    await answer(link, "ZADD", keys.owners, seconds * 1000 + lease_ms, RESTORED)


def _keep(fields: _Fields) -> Argument:
    return "" if fields.keys() & {"s:0", "h:0"} else KEEP_MS


_Hash = tuple[str, Argument, _Fields]


def _parts(hashes: list[_Hash]) -> Iterator[tuple[list[_Hash], bool]]:
    """And whether it is the last one; at least one, which sets the epoch."""
    for at in range(0, max(1, len(hashes)), PART):
        yield hashes[at : at + PART], at + PART >= len(hashes)
