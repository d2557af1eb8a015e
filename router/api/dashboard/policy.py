"""The policy page: the policy in force, a check of an edited policy, a replay under it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from fastapi import APIRouter, Request, Response

from router.api.dashboard.entry import posted
from router.api.dashboard.pages import Dashboard, draw
from router.api.dashboard.trial import PolicyTrial, replayed
from router.config.load import inspect_policy, try_policy
from router.config.policy import Config
from router.errors import ClientError
from router.report.report import Report
from router.types.request import DAY_MS
from router.types.yaml_file import Problem

# The policy in force, and a form to try another one: checked, replayed over the past days, never stored.

LARGEST = 256 * 1024
"""Maximum size of a pasted policy in bytes: a hundred times the shipped one."""
DAYS = (1, 7, 30, 90)
USUAL = 7
_REPLAY = "replay"


def add(router: APIRouter, site: Dashboard) -> None:
    @router.get("/dashboard/policy")
    async def policy(request: Request) -> Response:
        return await drawn(request, "", USUAL)

    @router.post("/dashboard/policy")
    async def tried(request: Request) -> Response:
        form = await posted(request)
        text = form.get("policy", "").replace("\r\n", "\n")
        if len(text.encode()) > LARGEST:
            raise ClientError(413, "request_too_large", f"The policy is larger than {LARGEST // 1024} KiB.")
        days = next((days for days in DAYS if form.get("days") == str(days)), USUAL)
        path, data = Path(site.policy().path), text.encode()
        config = await asyncio.to_thread(try_policy, data, path)
        if not isinstance(config, Config):
            return await drawn(request, text, days, mistakes=config)
        if form.get("action") != _REPLAY:
            return await drawn(request, text, days, mistakes=())
        try:
            report = await replayed(PolicyTrial(data, str(path), site.clock() - days * DAY_MS))
        except ClientError as error:
            return await drawn(request, text, days, mistakes=(), refusal=error)
        return await drawn(request, text, days, mistakes=(), replayed=report)

    async def drawn(
        request: Request,
        text: str,
        days: int,
        mistakes: Sequence[Problem] | None = None,
        replayed: Report | None = None,
        refusal: ClientError | None = None,
    ) -> Response:
        """`mistakes`: those of the posted text; None if none was posted. `refusal`: why the replay failed."""
        config = site.policy()
        return draw(
            request,
            "policy.html",
            refusal.status if refusal else 200,
            hash=config.in_force.hash,
            config=config,
            health=site.health(),
            problems=await asyncio.to_thread(inspect_policy, Path(config.path)),
            text=text,
            days=days,
            mistakes=mistakes,
            wrong={problem.line for problem in mistakes or ()},
            replayed=replayed,
            refusal=refusal,
            choices=DAYS,
        )
