"""The policy page: rules in force, a check of an edited policy, a replay under it."""

import asyncio
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Struct

from router.api.dashboard.entry import posted
from router.api.dashboard.pages import Dashboard, draw
from router.config.load import inspect_policy, try_policy
from router.config.policy import Config
from router.errors import ClientError
from router.processes import ChildProcess
from router.replay.report import Replayed, as_report
from router.report.report import Report
from router.settings import SettingError, read
from router.types.request import DAY_MS
from router.types.yaml_file import Problem

# Replays of pasted policies: in a process of their own, one at a time, and none for ever.

LIMIT_S = 120
"""A million requests take less than half of it."""
_LOCK = "replay.lock"
"""In the gateway's folder: its processes replay one policy at a time."""
_LARGEST_ANSWER = 64 * 1024 * 1024


class PolicyTrial(Struct, frozen=True):
    """`text`: the policy to try; `in_force`: the path of the other one; `since_ms`: Unix."""

    text: bytes
    in_force: str
    since_ms: int


async def replayed(trial: PolicyTrial, limit_s: float = LIMIT_S) -> Report:
    """Raises `ClientError`: 409 while another one runs in any process of the gateway, 504 where it takes too long, 500
    where it broke."""
    # What it says of its own may quote the policy: it is not heard. It ends with what it has started.
    child = ChildProcess("router.api.dashboard.trial", longest_line=_LARGEST_ANSWER, own_session=True)
    try:
        with (read(os.environ, policy=Path(trial.in_force)).home / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                async with asyncio.timeout(limit_s):
                    await child.start()
                    answer = await child.ask(msgspec.json.encode(trial))
            finally:
                child.kill()
                await child.gone()
    except BlockingIOError:
        raise _refused("Another replay is running: wait until it is done.") from None
    except SettingError as error:
        raise _refused(str(error)) from None
    except TimeoutError:
        message = f"The replay took longer than {limit_s:g} s: try fewer days, or `lowpass replay`."
        raise ClientError(504, "replay_too_long", message, type="api_error") from None
    except (OSError, EOFError):
        message = "The replay broke: `lowpass replay --policy FILE` tells more."
        raise ClientError(500, "internal_error", message, type="api_error") from None
    report = msgspec.json.decode(answer, type=Replayed | str)
    if isinstance(report, str):
        raise _refused(report)
    return as_report(report)


def _refused(message: str) -> ClientError:
    return ClientError(409, "replay_refused", message)


# The policy in force, and a form to try another one: looked through, replayed over the past days, kept nowhere.

LARGEST = 256 * 1024
"""Bytes of a pasted policy: a hundred times the shipped one."""
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
            message = f"The policy is larger than {LARGEST // 1024} KiB."
            raise ClientError(413, "request_too_large", message)
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
        """`mistakes`: of the posted text; None where nothing was posted. `refusal`: why nothing was replayed."""
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
