"""The Redis server as the budgets see it: there, with the scripts and with counters of our time; or not there.

It comes back by itself: a connection that broke is made anew until it stands. Whatever was lost with a server's data is
written again from the ledger before anything is admitted.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence

import hiredis

from router.budget.redis.link import Argument, Link, LinkDown, RedisRefused, address, connect
from router.budget.redis.rebuild import Books, rebuild
from router.budget.redis.scripts import NAMES, Keys, Script, answer, text
from router.types.secret import Secret
from router.types.store import StoreUnavailable

RETRY_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Before each try to connect again; the last one repeats."""
_OLDEST = (6, 2)

Reply = list[object]
Answered = Callable[[Reply | Exception], None]
_log = logging.getLogger(__name__)


class RedisServer:
    """`start` before use. `came` is called each time when the server is there (again)."""

    def __init__(
        self,
        url: Secret,
        books: Callable[[], Books],
        came: Callable[[], None],
        *,
        lease_ms: int,
        tag: str,
    ) -> None:
        self.keys = Keys(tag)
        self._scripts = {name: Script(name) for name in NAMES}
        self.interruptions = 0
        self._address = address(url)
        self._books, self._came, self._lease_ms = books, [came], lease_ms
        self._link: Link | None = None
        self._epoch = ""
        self._mending: asyncio.Task[None] | None = None
        self._closed = False
        self._complaint = ""

    @property
    def available(self) -> bool:
        return self._link is not None

    def tell(self, came: Callable[[], None]) -> None:
        """`came` too is called each time when the server is there (again)."""
        self._came.append(came)

    async def start(self) -> None:
        """Raises `RedisRefused`. Where the server can't be reached, returns all the same, and goes on trying."""
        try:
            await self._stand()
            await self._advise()
        except (LinkDown, StoreUnavailable) as error:
            _log.error("no budgets yet: %s; trying again", error)
            self._mend()

    async def stop(self) -> None:
        self._closed = True
        if self._mending is not None:
            self._mending.cancel()
        if self._link is not None:
            self._link.close()

    def call(self, name: str, keys: Sequence[str], arguments: Sequence[Argument], answered: Answered) -> None:
        """Runs a script. Answers with its reply, `StoreUnavailable`, or `RuntimeError` for a mistake of ours."""
        link, script = self._link, self._scripts[name]
        if link is None:
            answered(StoreUnavailable("the budget store can't be reached"))
            return
        # One for the epoch, which all scripts begin with.
        rest = (len(keys) + 1, self.keys.epoch, *keys, self._epoch, *arguments)

        def again(reply: object) -> None:
            if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
                link.send(("EVAL", script.source, *rest), lambda second: answered(self._judge(second)))
            else:
                answered(self._judge(reply))

        link.send(("EVALSHA", script.digest, *rest), again)

    async def run(self, name: str, keys: Sequence[str], *arguments: Argument) -> Reply:
        """Raises `StoreUnavailable`."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.call(name, keys, arguments, lambda reply: _resolve(future, reply))
        return await future

    async def ask(self, *command: Argument) -> object:
        """One plain command. Raises `StoreUnavailable`, and RuntimeError as `call` does."""
        if self._link is None:
            raise StoreUnavailable("the budget store can't be reached")
        try:
            reply = self._judge(await self._link.ask(*command))
        except LinkDown as error:
            raise StoreUnavailable(f"the budget store is gone: {error}") from None
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _judge(self, reply: object) -> Reply | Exception:
        if isinstance(reply, LinkDown):
            return StoreUnavailable(f"the budget store is gone: {reply}")
        if not isinstance(reply, hiredis.ReplyError):
            return reply  # type: ignore[return-value]
        inner = _INNER.search(str(reply))
        code = inner[1] if inner is not None else str(reply).split(" ", 1)[0]
        if code in _OURS:
            return RuntimeError(f"a budget script failed: {reply}")
        # Of another time, moved, a replica, full, loading …: whatever it is, the next connection finds out.
        if self._link is not None:
            self._link.close(code)
        return StoreUnavailable(f"the budget store can't be used: {code}")

    def _gone(self, link: Link) -> None:
        if link is self._link:
            self._link = None
            if not self._closed:
                self.interruptions += 1
                _log.error("the budget store is gone, connecting again")
                self._mend()

    def _mend(self) -> None:
        if self._mending is None or self._mending.done():
            self._mending = asyncio.get_running_loop().create_task(self._stand_again())

    async def _stand_again(self) -> None:
        tries = 0
        while self._link is None:
            await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
            tries += 1
            try:
                await self._stand()
            except (LinkDown, StoreUnavailable, RedisRefused) as error:
                self._complain(str(error))
            except Exception:
                _log.exception("the budget store could not be made ready")

    def _complain(self, complaint: str) -> None:
        """Each reason once, not with every try."""
        if complaint != self._complaint:
            self._complaint = complaint
            _log.error("no budgets: %s", complaint)

    async def _stand(self) -> None:
        link = await connect(self._address, self.keys.probe, self._gone)
        try:
            for script in self._scripts.values():
                script.digest = text(await answer(link, "SCRIPT", "LOAD", script.source))
            self._epoch = await self._agree(link)
        except BaseException:
            link.close("not ready")
            raise
        if not link.up:
            raise LinkDown("the connection broke")
        self._link, self._complaint = link, ""
        _log.info("budgets are kept by Redis at %s", self._address)
        for hears in self._came:
            hears()

    async def _agree(self, link: Link) -> str:
        """The epoch of the counters that are there; where there are none, of those that are written now."""
        if await answer(link, "GET", self.keys.epoch) is None:
            await rebuild(link, self.keys, self._scripts["rebuild"].digest, self._books, self._lease_ms)
        found = await answer(link, "GET", self.keys.epoch)
        if found is None:
            raise StoreUnavailable("another process writes the counters")
        return text(found)

    async def _advise(self) -> None:
        """What an operator should know about a server that may forget."""
        assert self._link is not None  # noqa: S101
        info = _info(await answer(self._link, "INFO"))
        version = info.get("redis_version", "0.0")
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
            raise RedisRefused(f"Redis at {self._address} is {version}: budgets need 6.2 or newer")
        if info.get("aof_enabled") == "0":
            _log.warning("Redis keeps no append-only file: set appendonly yes and appendfsync always")
        if info.get("maxmemory", "0") != "0" and info.get("maxmemory_policy") != "noeviction":
            _log.warning("Redis may drop budgets when its memory is full: set maxmemory-policy noeviction")


_OURS = ("ERR", "WRONGTYPE", "NOPERM")
# Before version 7 the error of a command in a script stands in the text of another one. A script that could not make
# its first write, for want of memory, a disk or a master, has made none.
_INNER = re.compile(r": -([A-Z]+) ")


def _resolve(future: "asyncio.Future[Reply]", reply: Reply | Exception) -> None:
    if future.done():
        return
    if isinstance(reply, Exception):
        future.set_exception(reply)
    else:
        future.set_result(reply)


def _info(reply: object) -> dict[str, str]:
    lines = reply.splitlines() if isinstance(reply, str) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)
