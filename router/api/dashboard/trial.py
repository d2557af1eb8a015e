"""The process behind the dashboard's replay form: another policy over the ledger, away from the gateway's own work.

Reads a `PolicyTrial` from its input and writes a `Replayed` to its output, or why there is none, each a line of JSON.
Nothing of the policy is kept, or said anywhere else.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from router.api.auth import ledger_of
from router.api.dashboard.policy import PolicyTrial
from router.config.load import load_policy, try_policy, unlaunched
from router.config.policy import Config
from router.errors import ConfigError
from router.replay.replay import replay
from router.replay.report import Replayed
from router.settings import SettingError, Settings
from router.settings import read as settings_of
from router.types.account import LedgerUnavailable

_LOCK = "replay.lock"
"""In the gateway's folder: its processes replay one policy at a time."""
_NICE = 10


class TrialRefused(Exception):
    """Why there is nothing to show."""


def main() -> None:
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    trial = msgspec.json.decode(sys.stdin.buffer.readline(), type=PolicyTrial)
    os.nice(_NICE)
    replayed: Replayed | str
    try:
        settings = settings_of(os.environ, policy=Path(trial.in_force))
        with _alone(settings.home):
            replayed = _replayed(trial, settings)
    except (TrialRefused, SettingError, LedgerUnavailable) as error:
        replayed = str(error)
    sys.stdout.buffer.write(msgspec.json.encode(replayed) + b"\n")


def _replayed(trial: PolicyTrial, settings: Settings) -> Replayed:
    config = try_policy(trial.text, settings.policy)
    if not isinstance(config, Config):
        raise TrialRefused("The policy is not sound.")
    # Half of the machine is left to the gateway.
    processes = max(1, (os.cpu_count() or 1) // 2)
    others: list[Config] = []
    with suppress(ConfigError):  # it helps where it can be read
        others.append(load_policy(settings.policy, unlaunched(settings.policy)))
    return replay(ledger_of(settings), config, trial.since_ms, others=others, processes=processes)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    with (home / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TrialRefused("Another replay is running: wait until it is done.") from None
        yield


if __name__ == "__main__":
    main()
