"""Budgets split off, in Redis. A child's booking in its parent is kept by the scripts; see lua/pot.lua."""

from collections.abc import Sequence

import msgspec
from msgspec import structs

from router.budget.redis.connection import Argument
from router.budget.redis.rows import Rows
from router.budget.redis.server import RedisServer, number, strings
from router.types.account import SPLIT, Account, Child, Refused

CLOSED_MS = 35 * 86_400_000
"""How long a closed child can be looked up."""
_TRIES = 5


class RedisChildren:
    def __init__(self, server: RedisServer, rows: Rows) -> None:
        self._server, self._rows, self._keys = server, rows, server.keys

    async def split(self, parent: Account, child: Child, now_ms: int) -> Child | Refused:
        """Raises ValueError for an id in use, a limit below 1, or a unit other than the parent's."""
        if child.limit < 1 or child.unit is not parent.unit:
            raise ValueError(f"a budget split off {parent.id} needs a limit of 1 or more, in {parent.unit}")
        keys = [self._keys.accounts + parent.id, self._keys.accounts + child.id, self._keys.document(child.id)]
        keys += [self._keys.children, self._keys.requests + child.id]
        ends: Argument = "" if child.expires_at_ms is None else child.expires_at_ms
        reply = await self._server.run(
            "split",
            keys,
            *(now_ms, child.id, msgspec.json.encode(child), child.limit, ends, int(_outlives(child, parent))),
            *(parent.id, int(parent.scope == SPLIT), parent.limit, parent.window_start_ms, parent.since_ms),
        )
        if reply[0] == 2:
            raise ValueError(f"the id {child.id} is in use: an id is for one budget only")
        if reply[0] == 0:
            return Refused(account=parent, spent=number(reply[1]), held=number(reply[2]), needed=child.limit)
        self._rows.hold(child.id, parent.id, parent.window_start_ms, child.limit)
        return child

    async def child(self, identifier: str) -> Child | None:
        document = await self._server.ask("GET", self._keys.document(identifier))
        return None if document is None else _read(document)

    async def still_open(self) -> list[Child]:
        identifiers = strings(await self._server.ask("SMEMBERS", self._keys.children))
        if not identifiers:
            return []
        documents = await self._server.ask("MGET", *map(self._keys.document, identifiers))
        found = [_read(document) for document in strings(documents)]
        return sorted(found, key=lambda child: (child.created_ms, child.id))

    async def ancestors(self, identifier: str) -> list[str]:
        """Accounts above a child, from its parent up; those above anything else are none."""
        found: list[str] = []
        while (child := await self.child(identifier)) is not None:
            identifier = child.parent
            found.append(identifier)
        return found

    async def close(self, identifier: str, now_ms: int) -> Child | None:
        for _ in range(_TRIES):
            child = await self.child(identifier)
            if child is None or child.closed_ms is not None:
                return child
            if await self._fold([*_below(child, await self.still_open()), child], now_ms):
                return await self.child(identifier)
        raise RuntimeError(f"budget {identifier} could not be closed: new ones are split off all the time")

    async def close_expired(self, now_ms: int) -> None:
        """Deepest first: a child that has an open one of its own holds something."""
        still = await self.still_open()
        ends = {child.id for child in still if child.expires_at_ms is not None and child.expires_at_ms <= now_ms}
        for child in [child for top in _tops(still) for child in (*_below(top, still), top) if child.id in ends]:
            held = await self._server.ask("HGET", self._keys.accounts + child.id, "h:0")
            if held in (None, "0"):
                await self._fold([child], now_ms)

    async def _fold(self, children: Sequence[Child], now_ms: int) -> bool:
        """Those below come first, the last is above all. False: another one has been split off in the meantime."""
        keys, arguments = [self._keys.children], [CLOSED_MS, len(children)]
        above = await self.ancestors(children[-1].id)
        below: list[Argument] = []
        for child in children:
            keys += (self._keys.accounts + child.id, self._keys.document(child.id))
            below += (child.id, msgspec.json.encode(structs.replace(child, closed_ms=now_ms)))
        keys += [self._keys.accounts + name for name in above]
        reply = await self._server.run("close", keys, *arguments, *below, *above)
        if reply[0]:
            self._rows.followed(reply[1:])
        return bool(reply[0])


def _read(document: object) -> Child:
    return msgspec.json.decode(str(document), type=Child)


def _below(child: Child, among: Sequence[Child]) -> list[Child]:
    """All below a child, the deepest first."""
    return [found for one in among if one.parent == child.id for found in (*_below(one, among), one)]


def _tops(children: Sequence[Child]) -> list[Child]:
    known = {child.id for child in children}
    return [child for child in children if child.parent not in known]


def _outlives(child: Child, parent: Account) -> bool:
    ends = [end for end in (parent.resets_at_ms, parent.expires_at_ms) if end is not None]
    return bool(ends) and (child.expires_at_ms is None or child.expires_at_ms > min(ends))
