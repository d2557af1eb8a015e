"""The policy in force, and a form to try another one: checked as `lowpass check` does, kept nowhere."""

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from router.api.dashboard import trial
from router.api.dashboard.forms import posted
from router.api.dashboard.pages import Pages
from router.api.dashboard.rules import tables
from router.api.dashboard.site import Site
from router.config import Config
from router.decide.in_force import in_force
from router.errors import ClientError, Problem

LARGEST = 256 * 1024
"""Bytes of a pasted policy: a thousand times the shipped one."""
DAYS = (1, 7, 30, 90)


def add(router: APIRouter, site: Site, pages: Pages) -> None:
    @router.get("/dashboard/policy")
    async def policy(request: Request) -> Response:
        return await draw(request, "", None)

    @router.post("/dashboard/policy")
    async def tried(request: Request) -> Response:
        form = await posted(request)
        text = form.get("policy", "").replace("\r\n", "\n")
        if len(data := text.encode()) > LARGEST:
            message = f"The policy is larger than {LARGEST // 1024} KiB."
            raise ClientError(413, "request_too_large", message)
        found = await asyncio.to_thread(trial.tried, data, site.policy(), site.catalog)
        return await draw(request, text, () if isinstance(found, Config) else found)

    async def draw(request: Request, text: str, found: Sequence[Problem] | None) -> Response:
        config = site.policy()
        return pages.draw(
            request,
            "policy.html",
            hash=_hash(config),
            tables=tables(config, site.health()),
            problems=await asyncio.to_thread(trial.in_force, config, site.catalog),
            text=text,
            lines=text.split("\n"),
            found=found,
            wrong={problem.line for problem in found or ()},
            days=DAYS,
        )


def _hash(config: Config) -> str:
    """What decisions and rows name."""
    classes = config.sensitivity
    return in_force(config.hash, classes.default, classes.classes, config.targets).hash
