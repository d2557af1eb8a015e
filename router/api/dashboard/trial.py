"""The process behind the dashboard's replay form: another policy over the ledger, away from the gateway's own work.

Reads a `PolicyTrial` from its input and writes a `Replayed` to its output, or why there is none, each a line of JSON.
Nothing of the policy is kept, or said anywhere else.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from router.api.auth import ledger_of
from router.api.dashboard.policy import PolicyTrial
from router.config.load import load_policy, try_policy
from router.config.policy import Config
from router.errors import ConfigError
from router.replay.replay import replay
from router.replay.report import Replayed
from router.settings import SettingError, Settings
from router.settings import read as settings_of
from router.types.account import LedgerUnavailable

_NICE = 10


def main() -> None:
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    trial = msgspec.json.decode(sys.stdin.buffer.readline(), type=PolicyTrial)
    os.nice(_NICE)
    answer: Replayed | str
    try:
        answer = replayed(trial, settings_of(os.environ, policy=Path(trial.in_force)))
    except (SettingError, LedgerUnavailable) as error:
        answer = str(error)
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")


def replayed(trial: PolicyTrial, settings: Settings) -> Replayed | str:
    """Else why there is nothing to show. Raises `LedgerUnavailable`."""
    config = try_policy(trial.text, settings.policy)
    if not isinstance(config, Config):
        return "The policy is not sound."
    # Half of the machine is left to the gateway.
    processes = max(1, (os.cpu_count() or 1) // 2)
    others: list[Config] = []
    with suppress(ConfigError):  # it helps where it can be read
        others.append(load_policy(settings.policy))
    return replay(ledger_of(settings), config, trial.since_ms, others=others, processes=processes)


if __name__ == "__main__":
    main()
