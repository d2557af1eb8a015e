"""Leases in Redis: a process renews one key; what a process that stopped renewing still holds is charged."""

import asyncio
from collections.abc import Mapping, Sequence

from router.budget.redis.children import RedisChildren
from router.budget.redis.link import Argument
from router.budget.redis.rows import Rows
from router.budget.redis.scripts import strings
from router.budget.redis.server import RedisServer, Reply
from router.budget.redis.settle import DONE, NEEDS
from router.types.account import Hold, Unit

RECOVERED_MS = 86_400_000
"""How long a hold that was recovered can still be corrected to the true charge."""

_Held = list[tuple[str, int, int]]
"""Account, window start, amount."""


class Recovery:
    def __init__(self, server: RedisServer, children: RedisChildren, rows: Rows, owner: str, lease_ms: int) -> None:
        self._server, self._children, self._rows = server, children, rows
        self._owner, self._lease_ms = owner, lease_ms
        self._quiet_until = 0.0

    def resume(self) -> None:
        """While the server was gone nobody could renew a lease: the living come first, for the time of one lease."""
        if self._server.interruptions:
            self._quiet_until = asyncio.get_running_loop().time() + self._lease_ms / 1000

    async def run(self) -> int:
        """Returns how many requests were charged."""
        dead = await self._server.run("lease", [self._server.keys.owners], self._owner, self._lease_ms)
        if asyncio.get_running_loop().time() < self._quiet_until:
            return 0
        return sum([await self._bury(owner) for owner in strings(dead)])

    async def _bury(self, owner: str) -> int:
        keys = self._server.keys
        requests = strings(await self._server.ask("SMEMBERS", keys.owner(owner)))
        count = sum([await self._charge(owner, request_id) for request_id in requests])
        if not await self._server.ask("EXISTS", keys.owner(owner)):
            await self._server.ask("ZREM", keys.owners, owner)
        return count

    async def _charge(self, owner: str, request_id: str) -> bool:
        fields = strings(await self._server.ask("HGETALL", self._server.keys.requests + request_id))
        request = dict(zip(fields[::2], fields[1::2], strict=True))
        if "s" in request:
            self._rows.settled(request_id, *_settled(request))
            await self._server.ask("SREM", self._server.keys.owner(owner), request_id)
            return False
        held = _held(request)
        reply = await self._settle(owner, request_id, held, ())
        if reply[0] == NEEDS:
            above = await self._children.ancestors(str(reply[1]))
            reply = await self._settle(owner, request_id, held, above)
        if reply[0] != DONE:
            return False
        self._rows.recovered(request_id, held)
        self._rows.followed(reply[1:])
        return True

    async def _settle(self, owner: str, request_id: str, held: _Held, above: Sequence[str]) -> Reply:
        keys = self._server.keys
        touched = [keys.requests + request_id, keys.owner(owner), keys.owners]
        touched += [keys.accounts + name for name in (*(account for account, _, _ in held), *above)]
        arguments: list[Argument] = ["recover", request_id, owner, RECOVERED_MS, len(held)]
        for booking in held:
            arguments += booking
        return await self._server.run("settle", touched, *arguments, *above)


def _held(request: Mapping[str, str]) -> _Held:
    found = []
    for name, amount in request.items():
        start, bar, account = name.partition("|")
        if bar:
            found.append((account, int(start), int(amount)))
    return found


def _settled(request: Mapping[str, str]) -> tuple[list[Hold], list[int]]:
    """What settle.lua noted of a request whose owner died before it wrote the rows."""
    holds, charges = [], []
    for name, amounts in request.items():
        if name.startswith("c|"):
            _, start, account = name.split("|", 2)
            held, charged = amounts.split("|")
            holds.append(Hold(account, int(start), Unit.USD, int(held)))
            charges.append(int(charged))
    return holds, charges
