"""`lowpass replay` over a whole ledger, under a policy that lacks a target: seconds, all of it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct

from bench.load import LoadError
from bench.reports.policy import NAME, policy

LESS = "haiku"
_LIMIT_S = 1_800


class Replays(Struct, frozen=True):
    requests: int
    seconds: float
    requests_per_second: int


def replays(folder: Path, requests: int) -> Replays:
    (folder / NAME).write_text(json.dumps(policy()))
    other = folder / "other.yaml"
    other.write_text(json.dumps(policy(without=LESS)))
    argv = [sys.executable, "-m", "router.cli", "replay", "--policy", str(other), "--against", str(folder / NAME)]
    env = os.environ | {"LOWPASS_HOME": str(folder)}
    began = time.perf_counter()
    done = subprocess.run([*argv, "--json"], env=env, capture_output=True, timeout=_LIMIT_S)
    took = time.perf_counter() - began
    if done.returncode:
        raise LoadError(f"the replay failed: {done.stderr.decode(errors='replace')[-500:]}")
    return Replays(requests, round(took, 1), round(requests / took))
