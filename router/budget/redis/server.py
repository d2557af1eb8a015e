"""The Redis server of the budgets: available, with scripts loaded and current counters, or unavailable.

A broken connection is reopened automatically. Counters that the server has lost are rebuilt from the ledger before any
request is admitted.
"""

import asyncio
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files

from msgspec import Struct
from redis.exceptions import NoScriptError

from router.budget.redis import connection
from router.types.account import StoreUnavailable
from router.types.clock import new_id
from router.types.target import Secret

RETRY_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Delays in seconds before successive attempts to reconnect; the last one repeats."""
REBUILD_S = 20.0
"""Timeout in seconds for one part of a rebuild."""
BATCH = 2_000
KEEP_MS = 400 * 86_400_000
"""Time in ms after which a rebuilt counter expires, longer than any window. Lifetime counters do not expire."""
RESTORED = "restored"
"""Owner of rebuilt holds. They are recovered like those of a dead process, and corrected at settlement."""
SETTLED_MS = 1_800_000
"""Time in ms for which a settled request is remembered; a settlement repeated later counts as that of a lost hold."""
RECOVERED_MS = 86_400_000
"""Time in ms in which a recovered hold can still be corrected to the true charge."""
SCRIPTS = ("reserve", "extend", "settle", "balances", "lease", "split", "close", "rebuild", "seen", "taint")
_OLDEST = (6, 2)

Reply = list[object]
OnReply = Callable[[Reply | Exception], None]
_log = logging.getLogger(__name__)


class RedisKeys:
    """Names of the Redis keys. All have the same hash tag, so that they are in one slot of a cluster."""

    def __init__(self, tag: str) -> None:
        self._prefix = f"{{{tag}}}:"
        self.epoch, self.owners, self.children = self.of("epoch"), self.of("owners"), self.of("children")
        self.lock, self.probe, self.run = self.of("rebuild"), self.of("probe"), self.of("run")
        self.accounts, self.requests, self.values = self.of("a:"), self.of("r:"), self.of("v:")
        self.sessions, self.policies = self.of("s:"), self.of("policies")
        self.owned, self.documents = self.of("o:"), self.of("c:")

    def of(self, name: str) -> str:
        return self._prefix + name


class LedgerTotals(Struct, frozen=True):
    """A snapshot of the ledger's bookings in all accounts whose windows may still count."""

    spent: Iterable[tuple[str, int, int]]
    """Account, window start (Unix ms), sum of the charges."""
    held: Iterable[tuple[str, str, int, int]]
    """Bookings not charged yet: request, account, window start, amount."""
    sessions: Mapping[str, Iterable[str]] = {}
    """Session → fields of its hash: the sensitivity classes it has seen."""
    ended: Iterable[tuple[str, str, int, int, str]] = ()
    """Bookings of the last `SETTLED_MS`: request, account, window start, charge, state (`settled` or `recovered`)."""


class RedisServer:
    """The server and the connection to it. Call `start` before use."""

    def __init__(self, url: Secret, books: Callable[[], LedgerTotals], *, lease_ms: int, tag: str) -> None:
        self.keys = RedisKeys(tag)
        folder = files("router.budget.redis").joinpath("lua")
        shared = folder.joinpath("pot.lua").read_text()
        self._sources = {name: shared + folder.joinpath(f"{name}.lua").read_text() for name in SCRIPTS}
        self._digests: dict[str, str] = {}
        self.interruptions = 0
        self._servers = connection.servers(url)
        self._books, self._lease_ms = books, lease_ms
        self.on_available: list[Callable[[], None]] = []
        """Callbacks for each time the server becomes available."""
        self.link: connection.RedisConnection | None = None
        self.epoch = self.run_id = ""
        """Id of the server's current counters; a rebuild changes it."""
        self._reconnecting: asyncio.Task[None] | None = None
        self._closed = False
        self._last_error = ""

    @property
    def available(self) -> bool:
        return self.link is not None

    async def start(self) -> None:
        """Connects; if the server can't be reached, keeps trying in the background. Raises `RedisRefused`."""
        try:
            await self._connect()
        except (connection.RedisUnreachable, StoreUnavailable) as error:
            _log.error("no budgets yet: %s; trying again", error)
            self._reconnect()

    async def stop(self) -> None:
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if (link := self.link) is not None:
            link.close()
            await link.ended()

    def call(
        self, name: str, keys: Sequence[str], arguments: Sequence[connection.Argument], on_answer: OnReply
    ) -> None:
        """Runs a script; calls `on_answer` with its reply, `StoreUnavailable`, or `RuntimeError` if it fails."""
        link = self.link
        if link is None:
            on_answer(StoreUnavailable("the budget store can't be reached"))
            return
        # Plus one: the first key of every script is the epoch.
        command = (len(keys) + 1, self.keys.epoch, *keys, self.epoch, *arguments)

        def on_first_reply(reply: object) -> None:
            if isinstance(reply, NoScriptError):
                link.send(("EVAL", self._sources[name], *command), lambda second: on_answer(self._result_of(second)))
            else:
                on_answer(self._result_of(reply))

        link.send(("EVALSHA", self._digests[name], *command), on_first_reply)

    async def run(self, name: str, keys: Sequence[str], *arguments: connection.Argument) -> Reply:
        """Runs a script and returns its reply. Raises `StoreUnavailable`, and RuntimeError if the script fails."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.call(name, keys, arguments, lambda reply: connection.resolve(future, reply))
        return await future

    async def ask(self, *command: connection.Argument) -> object:
        """Sends a plain command and returns its reply. Raises `StoreUnavailable`, and RuntimeError if it is invalid."""
        if self.link is None:
            raise StoreUnavailable("the budget store can't be reached")
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.link.send(command, lambda reply: connection.resolve(future, self._result_of(reply)))
        return await future

    def _result_of(self, reply: object) -> Reply | Exception:
        if isinstance(reply, connection.RedisUnreachable):
            return StoreUnavailable(f"the budget store is gone: {reply}")
        if not isinstance(reply, connection.REFUSALS):
            return reply  # type: ignore[return-value]
        inner = _INNER.search(str(reply))
        reason = inner[1] if inner is not None else connection.code(reply)
        if reason in _SCRIPT_ERRORS:
            return RuntimeError(f"a budget script failed: {reply}")
        # Another epoch, moved, a replica, full, loading …: reconnecting handles each of them.
        if self.link is not None:
            self.link.close(reason)
        return StoreUnavailable(f"the budget store can't be used: {reason}")

    def _on_closed(self, link: connection.RedisConnection) -> None:
        if link is self.link:
            self.link = None
            if not self._closed:
                self.interruptions += 1
                _log.error("the budget store is gone, connecting again")
                self._reconnect()

    def _reconnect(self) -> None:
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = asyncio.get_running_loop().create_task(self._keep_connecting())

    async def _keep_connecting(self) -> None:
        tries = 0
        while self.link is None:
            await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
            tries += 1
            try:
                await self._connect()
            except (connection.RedisUnreachable, StoreUnavailable, connection.RedisRefused) as error:
                if str(error) != self._last_error:  # each reason is logged once, not at every attempt
                    self._last_error = str(error)
                    _log.error("no budgets: %s", error)
            except Exception:
                _log.exception("the budget store could not be made ready")

    async def _connect(self) -> None:
        link = await self._servers.connect(self.keys.probe, self._on_closed)
        try:
            for name, source in self._sources.items():
                self._digests[name] = str(await answer(link, "SCRIPT", "LOAD", source))
            self.epoch = await self._current_epoch(link)
        except BaseException:
            link.close("not ready")
            raise
        if not link.is_open:
            raise connection.RedisUnreachable("the connection broke")
        self.link, self._last_error = link, ""
        _log.info("budgets are kept by Redis at %s", self._servers)
        for notify in self.on_available:
            notify()

    async def _current_epoch(self, link: connection.RedisConnection) -> str:
        """Returns the epoch of the server's counters, after rebuilding them if there are none."""
        info = _info(await link.ask("INFO"))
        run = info.get("run_id", "")
        if await answer(link, "GET", self.keys.epoch) is None:
            await self._rebuild(link)
        elif info.get("aof_enabled") == "1" and await answer(link, "GET", self.keys.run) != run:
            await _rewrite_append_only_file(link)
        epoch = await answer(link, "GET", self.keys.epoch)
        if epoch is None:
            raise StoreUnavailable("another process writes the counters")
        await answer(link, "SET", self.keys.run, run)
        self.run_id = run
        if not self.epoch:
            self._check_settings(info)
        return str(epoch)

    async def _rebuild(self, link: connection.RedisConnection) -> None:
        """Rebuilds the counters from the ledger if the server is new or has lost its data, before any request is
        admitted. If several processes try, one of them does it."""
        timeout_s, link.timeout_s = link.timeout_s, REBUILD_S
        books = await asyncio.to_thread(self._books)
        accounts, requests = _fields(books)
        held = [name for name, fields in requests.items() if "o" in fields]
        if accounts:
            text = "Redis has lost its budgets: %d accounts, %d open requests come from the ledger"
            _log.warning(text, len(accounts), len(held))
        if held:
            seconds = int(strings(await answer(link, "TIME"))[0])
            await answer(link, "SADD", self.keys.owned + RESTORED, *held)
            await answer(link, "ZADD", self.keys.owners, seconds * 1000 + self._lease_ms, RESTORED)
        keys = self.keys
        hashes: list[tuple[str, connection.Argument, _Fields]] = [
            (keys.accounts + k, "" if fields.keys() & {"s:0", "h:0"} else KEEP_MS, fields)
            for k, fields in accounts.items()
        ]
        for name, fields in requests.items():
            expires_ms: connection.Argument = SETTLED_MS if "s" in fields else RECOVERED_MS if "r" in fields else ""
            hashes.append((keys.requests + name, expires_ms, fields))
        hashes += [(keys.sessions + name, "", dict.fromkeys(fields, 1)) for name, fields in books.sessions.items()]
        rebuilder_id, epoch = new_id(), new_id()
        # At least one part is sent, since the last part sets the epoch.
        for at in range(0, max(1, len(hashes)), BATCH):
            batch, last = hashes[at : at + BATCH], at + BATCH >= len(hashes)
            arguments: list[connection.Argument] = [rebuilder_id, int(REBUILD_S * 1000), epoch if last else ""]
            for _, expires_ms, fields in batch:
                arguments += (expires_ms, len(fields), *(value for field in fields.items() for value in field))
            touched = [keys.epoch, keys.lock, *(key for key, _, _ in batch)]
            if not await answer(link, "EVALSHA", self._digests["rebuild"], len(touched), *touched, *arguments):
                break
        link.timeout_s = timeout_s

    def _check_settings(self, info: Mapping[str, str]) -> None:
        """Warns about settings with which the server may lose data. Raises `RedisRefused` if it is too old."""
        version = info.get("redis_version", "6.2")
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
            raise connection.RedisRefused(f"Redis at {self._servers} is {version}: budgets need 6.2 or newer")
        if info.get("aof_enabled") == "0":
            _log.warning("Redis keeps no append-only file: set appendonly yes and appendfsync always")
        if info.get("maxmemory", "0") != "0" and info.get("maxmemory_policy") != "noeviction":
            _log.warning("Redis may drop budgets when its memory is full: set maxmemory-policy noeviction")


async def windows(url: Secret, tag: str = "lowpass") -> Counter[tuple[str, int, str]]:
    """Returns a server's amounts by account, window start (Unix ms) and kind (`s`: spent, `h`: held). Raises
    `RedisRefused`, and `StoreUnavailable` if the server can't be reached."""
    keys, amounts = RedisKeys(tag), Counter[tuple[str, int, str]]()
    try:
        link = await connection.servers(url).connect(keys.probe, lambda _: None)
    except connection.RedisUnreachable as error:
        raise StoreUnavailable(str(error)) from None
    cursor: object = None
    while cursor != "0":
        reply = await answer(link, "SCAN", str(cursor or 0), "MATCH", f"{keys.accounts}*", "COUNT", BATCH)
        cursor, names = reply if isinstance(reply, list) else ("0", [])
        for name in strings(names):
            fields = strings(await answer(link, "HGETALL", name))
            for field, amount in zip(fields[::2], fields[1::2], strict=True):
                if field[:2] in ("s:", "h:"):
                    amounts[name.removeprefix(keys.accounts), int(field[2:]), field[0]] = int(amount)
    link.close()
    await link.ended()
    return amounts


async def _rewrite_append_only_file(link: connection.RedisConnection) -> None:
    """Rewrites the server's append-only file after a restart, before anything is booked.

    A server that dies while writing leaves a part of a script's commands at the end of the file. At the next start, it
    skips them but leaves them in the file; at the start after that, it would run them with the commands after them.
    """
    await link.ask("BGREWRITEAOF")  # refused if one is in progress or the user lacks the right
    rewriting = True
    while rewriting:
        await asyncio.sleep(RETRY_S[0])
        info = _info(await link.ask("INFO"))
        rewriting = "1" in (info.get("aof_rewrite_in_progress"), info.get("aof_rewrite_scheduled"))


def _info(reply: object) -> dict[str, str]:
    """Returns the fields of an INFO reply; a refusal has no known field."""
    return dict(line.split(":", 1) for line in str(reply).splitlines() if ":" in line)


_SCRIPT_ERRORS = ("ERR", "WRONGTYPE", "NOPERM")
# Before Redis 7, the error of a command in a script is quoted in the text of another error. A script whose first write
# fails, for lack of memory, disk or a master, has written nothing.
_INNER = re.compile(r": -([A-Z]+) ")


async def answer(link: connection.RedisConnection, *command: connection.Argument) -> object:
    """Returns the reply to a command. Raises `RedisUnreachable`, and `StoreUnavailable` if the server refuses."""
    reply = await link.ask(*command)
    if isinstance(reply, connection.REFUSALS):
        raise StoreUnavailable(f"the budget store refuses {command[0]!s}: {connection.code(reply)}")
    return reply


def number(value: object) -> int:
    """Returns an integer of a reply; values that a script has read arrive as text."""
    return value if isinstance(value, int) else int(str(value))


def strings(reply: object) -> list[str]:
    return [str(value) for value in reply] if isinstance(reply, list) else []


_Fields = Mapping[str, int | str]


def _fields(books: LedgerTotals) -> tuple[Mapping[str, _Fields], Mapping[str, _Fields]]:
    """Returns the hashes of all accounts, and of all requests that hold something or ended recently: without the
    latter, a repeated settlement would be booked twice."""
    accounts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    requests: dict[str, dict[str, int | str]] = {}
    for account, start, amount in books.spent:
        accounts[account][f"s:{start}"] += amount
    for request, account, start, amount in books.held:
        accounts[account][f"h:{start}"] += amount
        requests.setdefault(request, {"o": RESTORED})[f"{start}|{account}"] = amount
    for request, account, start, amount, state in books.ended:
        fields = requests.setdefault(request, {"r": 1} if state == "recovered" else {"s": 1})
        if "r" in fields:
            fields[f"{start}|{account}"] = amount
    return accounts, requests
