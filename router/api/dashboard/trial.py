"""Replays of pasted policies outside the gateway: in a separate process, one at a time, with a time limit.

The process reads a `PolicyTrial` from its input and writes a `Replayed`, or why there is none, to its output, each a
line of JSON. The policy is neither stored nor written anywhere else.
"""

import asyncio
import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from router.api.auth import ledger_of
from router.config.load import load_policy, try_policy
from router.config.policy import Config
from router.errors import ClientError, ConfigError
from router.processes import ChildProcess
from router.replay.replay import Replayed, as_report, replay
from router.report.report import Report
from router.settings import SettingError, read
from router.types.account import LedgerUnavailable

LIMIT_S = 120
"""Maximum time in seconds of a replay; a million requests take less than half of it."""
_LOCK = "replay.lock"
"""Lock file in the gateway's home folder: its processes replay one policy at a time."""
_LARGEST_ANSWER = 64 * 1024 * 1024
_NICE = 10


class PolicyTrial(Struct, frozen=True):
    """`text`: the policy to try; `in_force`: path of the policy in force; `since_ms`: start, Unix time."""

    text: bytes
    in_force: str
    since_ms: int


async def replayed(trial: PolicyTrial, limit_s: float = LIMIT_S) -> Report:
    """Replays a pasted policy. Raises `ClientError`: 409 while another replay runs in any process of the gateway, or if
    nothing can be replayed, 504 if it takes too long, 500 if it breaks."""
    # Its standard error may quote the policy, so it is ignored. Its own session ends its children with it.
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
        result = msgspec.json.decode(answer, type=Replayed | str)
    except BlockingIOError:
        result = "Another replay is running: wait until it is done."
    except SettingError as error:
        result = str(error)
    except TimeoutError:
        message = f"The replay took longer than {limit_s:g} s: try fewer days, or `lowpass replay`."
        raise ClientError(504, "replay_too_long", message, type="api_error") from None
    except (OSError, EOFError):
        message = "The replay broke: `lowpass replay --policy FILE` tells more."
        raise ClientError(500, "internal_error", message, type="api_error") from None
    if isinstance(result, str):
        raise ClientError(409, "replay_refused", result)
    return as_report(result)


def main() -> None:
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    trial = msgspec.json.decode(sys.stdin.buffer.readline(), type=PolicyTrial)
    os.nice(_NICE)
    try:
        answer = _replayed(trial)
    except (SettingError, LedgerUnavailable) as error:
        answer = str(error)
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")


def _replayed(trial: PolicyTrial) -> Replayed | str:
    """Returns the replay, or why there is none. Raises `SettingError` and `LedgerUnavailable`."""
    settings = read(os.environ, policy=Path(trial.in_force))
    config = try_policy(trial.text, settings.policy)
    if not isinstance(config, Config):
        return "The policy is not sound."
    # Half of the cores are left to the gateway.
    processes = max(1, (os.cpu_count() or 1) // 2)
    others: list[Config] = []
    with suppress(ConfigError):  # the policy in force is optional
        others.append(load_policy(settings.policy))
    return replay(ledger_of(settings), config, trial.since_ms, others=others, processes=processes)


if __name__ == "__main__":
    main()
