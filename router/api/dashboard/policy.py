"""The policy in force, and a form to try another one: looked through, replayed over the past days, kept nowhere."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from fastapi import APIRouter, Request, Response
from msgspec import Struct

from router.api.dashboard import trial
from router.api.dashboard.forms import posted
from router.api.dashboard.pages import Pages
from router.api.dashboard.replaying import Replays, Trial
from router.api.dashboard.rules import tables
from router.api.dashboard.site import Site
from router.config import Config
from router.decide.in_force import in_force
from router.errors import ClientError, Problem
from router.report.report import Report
from router.types.length import DAY_MS

LARGEST = 256 * 1024
"""Bytes of a pasted policy: a hundred times the shipped one."""
DAYS = (1, 7, 30, 90)
USUAL = 7
_REPLAY = "replay"


class Tried(Struct, frozen=True, kw_only=True):
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


def add(router: APIRouter, site: Site, pages: Pages) -> None:
    replays = Replays()

    @router.get("/dashboard/policy")
    async def policy(request: Request) -> Response:
        return await draw(request, Tried())

    @router.post("/dashboard/policy")
    async def tried(request: Request) -> Response:
        form = await posted(request)
        text = form.get("policy", "").replace("\r\n", "\n")
        if len(text.encode()) > LARGEST:
            message = f"The policy is larger than {LARGEST // 1024} KiB."
            raise ClientError(413, "request_too_large", message)
        days = next((days for days in DAYS if form.get("days") == str(days)), USUAL)
        return await draw(request, await attempt(text, days, again=form.get("action") == _REPLAY))

    async def attempt(text: str, days: int, *, again: bool) -> Tried:
        path, data = Path(site.policy().path), text.encode()
        found = await asyncio.to_thread(trial.tried, data, path, site.catalog)
        if not isinstance(found, Config):
            return Tried(text=text, days=days, found=found)
        try:
            about = Trial(data, str(path), site.clock() - days * DAY_MS)
            replayed = await replays.run(about) if again else None
        except ClientError as error:
            return Tried(text=text, days=days, found=(), refusal=error)
        return Tried(text=text, days=days, found=(), replayed=replayed)

    async def draw(request: Request, tried: Tried) -> Response:
        config = site.policy()
        return pages.draw(
            request,
            "policy.html",
            tried.refusal.status if tried.refusal else 200,
            hash=_hash(config),
            tables=tables(config, site.health()),
            problems=await asyncio.to_thread(trial.problems_of, Path(config.path), site.catalog),
            tried=tried,
            days=DAYS,
        )


def _hash(config: Config) -> str:
    """What decisions and rows name."""
    classes = config.sensitivity
    return in_force(config.hash, classes.default, classes.classes, config.targets).hash
