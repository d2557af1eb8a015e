"""Keys, scripts and replies of the budgets in Redis, and of the sessions beside them."""

from importlib.resources import files

import hiredis

from router.budget.redis.link import Argument, Link
from router.types.store import StoreUnavailable

NAMES = ("reserve", "extend", "settle", "balances", "lease", "split", "close", "rebuild", "seen", "taint")


class Script:
    """One Lua script of this package, behind the functions that all of them share."""

    def __init__(self, name: str) -> None:
        folder = files("router.budget.redis").joinpath("lua")
        self.source = folder.joinpath("pot.lua").read_text() + folder.joinpath(f"{name}.lua").read_text()
        self.digest = ""


class Keys:
    """All keys have one hash tag: one slot of a cluster."""

    def __init__(self, tag: str) -> None:
        self._prefix = f"{{{tag}}}:"
        self.epoch, self.owners, self.children = self.of("epoch"), self.of("owners"), self.of("children")
        self.lock, self.probe = self.of("rebuild"), self.of("probe")
        self.accounts, self.requests, self.values = self.of("a:"), self.of("r:"), self.of("v:")
        self.sessions = self.of("s:")

    def of(self, name: str) -> str:
        return self._prefix + name

    def owner(self, owner: str) -> str:
        return self.of(f"o:{owner}")

    def document(self, child: str) -> str:
        return self.of(f"c:{child}")


async def answer(link: Link, *command: Argument) -> object:
    """Raises `LinkDown` and, where the server refuses, `StoreUnavailable`."""
    reply = await link.ask(*command)
    if isinstance(reply, hiredis.ReplyError):
        raise StoreUnavailable(f"the budget store refuses {command[0]!s}: {str(reply).split(' ', 1)[0]}")
    return reply


def text(reply: object) -> str:
    if not isinstance(reply, str):
        raise StoreUnavailable("the budget store answers what was not asked")
    return reply


def number(value: object) -> int:
    """An integer of a reply; those that a script has read come as text."""
    return value if isinstance(value, int) else int(str(value))


def strings(reply: object) -> list[str]:
    return [str(value) for value in reply] if isinstance(reply, list) else []
