"""A real gateway for the examples: `lowpass serve` with its engine, on a free port and with a home of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs import ROOT

_ADDRESS = re.compile(r"lowpass answers at (\S+)")


def environment(home: Path) -> dict[str, str]:
    """Nothing of the developer's own lowpass; `lowpass` on the path is this checkout's."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("LOWPASS_")}
    command = home / "bin" / "lowpass"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m router.cli "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join((str(command.parent), str(Path(sys.executable).parent), ours.get("PATH", "")))
    return {**ours, "PATH": path, "PYTHONPATH": str(ROOT), "LOWPASS_HOME": str(home)}


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """The gateway's URL."""
    command = [sys.executable, "-m", "router.cli", "serve", "--port", "0"]
    log = (home / "gateway.log").open("wb+")
    with (
        log,
        subprocess.Popen(command, cwd=ROOT, env=environment(home), stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None
            found = next(filter(None, (_ADDRESS.search(line.decode()) for line in process.stdout)), None)
            assert found, (home / "gateway.log").read_text()
            yield found[1]
        finally:
            process.terminate()
            process.communicate(timeout=30)
