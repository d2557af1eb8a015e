"""The policy page: rules in force, a check of an edited policy, a replay under it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Struct

from router.api.dashboard.entry import posted
from router.api.dashboard.pages import Dashboard, Pages
from router.config.load import inspect_policy, try_policy
from router.config.policy import Config
from router.errors import ClientError
from router.processes import ChildProcess
from router.replay.report import Replayed, as_report
from router.report.report import Report
from router.types.request import DAY_MS
from router.types.yaml_file import Problem

# Replays of pasted policies: in a process of their own, one at a time, and none for ever.

LIMIT_S = 120
"""A million requests take less than half of it."""
_LARGEST_ANSWER = 64 * 1024 * 1024


class PolicyTrial(Struct, frozen=True):
    """`text`: the policy to try; `in_force`: the path of the other one; `since_ms`: Unix."""

    text: bytes
    in_force: str
    since_ms: int


class ReplayJobs:
    """Those of one gateway process."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._running = asyncio.Lock()
        self._limit_s = limit_s

    async def run(self, trial: PolicyTrial) -> Report:
        """Raises `ClientError`: 409 while there is another one, 504 where it takes too long, 500 where it broke."""
        if self._running.locked():
            raise _refused("Another replay is running: wait until it is done.")
        async with self._running:
            # What it says of its own may quote the policy: it is not heard. It ends with what it has started.
            child = ChildProcess("router.api.dashboard.trial", longest_line=_LARGEST_ANSWER, own_session=True)
            try:
                async with asyncio.timeout(self._limit_s):
                    await child.start()
                    answer = await child.ask(msgspec.json.encode(trial))
            except TimeoutError:
                message = f"The replay took longer than {self._limit_s:g} s: try fewer days, or `lowpass replay`."
                raise ClientError(504, "replay_too_long", message, type="api_error") from None
            except (OSError, EOFError):
                message = "The replay broke: `lowpass replay --policy FILE` tells more."
                raise ClientError(500, "internal_error", message, type="api_error") from None
            finally:
                child.kill()
                await child.gone()
        replayed = msgspec.json.decode(answer, type=Replayed | str)
        if isinstance(replayed, str):
            raise _refused(replayed)
        return as_report(replayed)


def _refused(message: str) -> ClientError:
    return ClientError(409, "replay_refused", message)


# The policy in force, and a form to try another one: looked through, replayed over the past days, kept nowhere.

LARGEST = 256 * 1024
"""Bytes of a pasted policy: a hundred times the shipped one."""
DAYS = (1, 7, 30, 90)
USUAL = 7
_REPLAY = "replay"


class PolicyTrialResult(Struct, frozen=True, kw_only=True):
    """What came of a posted form. `found`: mistakes; None where nothing was posted. `refusal`: why nothing came."""

    text: str = ""
    days: int = USUAL
    found: Sequence[Problem] | None = None
    replayed: Report | None = None
    refusal: ClientError | None = None

    @property
    def wrong(self) -> frozenset[int]:
        """Lines with a mistake, from 1 on."""
        return frozenset(problem.line for problem in self.found or ())


def add(router: APIRouter, site: Dashboard, pages: Pages) -> None:
    replays = ReplayJobs()

    @router.get("/dashboard/policy")
    async def policy(request: Request) -> Response:
        return await draw(request, PolicyTrialResult())

    @router.post("/dashboard/policy")
    async def tried(request: Request) -> Response:
        form = await posted(request)
        text = form.get("policy", "").replace("\r\n", "\n")
        if len(text.encode()) > LARGEST:
            message = f"The policy is larger than {LARGEST // 1024} KiB."
            raise ClientError(413, "request_too_large", message)
        days = next((days for days in DAYS if form.get("days") == str(days)), USUAL)
        return await draw(request, await attempt(text, days, again=form.get("action") == _REPLAY))

    async def attempt(text: str, days: int, *, again: bool) -> PolicyTrialResult:
        path, data = Path(site.policy().path), text.encode()
        config = await asyncio.to_thread(try_policy, data, path)
        if not isinstance(config, Config):
            return PolicyTrialResult(text=text, days=days, found=config)
        try:
            about = PolicyTrial(data, str(path), site.clock() - days * DAY_MS)
            replayed = await replays.run(about) if again else None
        except ClientError as error:
            return PolicyTrialResult(text=text, days=days, found=(), refusal=error)
        return PolicyTrialResult(text=text, days=days, found=(), replayed=replayed)

    async def draw(request: Request, tried: PolicyTrialResult) -> Response:
        config = site.policy()
        return pages.draw(
            request,
            "policy.html",
            tried.refusal.status if tried.refusal else 200,
            hash=config.in_force.hash,
            config=config,
            health=site.health(),
            problems=await asyncio.to_thread(inspect_policy, Path(config.path)),
            tried=tried,
            days=DAYS,
        )
