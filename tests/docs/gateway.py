"""What the examples run in: `lowpass` on the path is this checkout's, its state is in a folder of its own."""

import os
import sys
from pathlib import Path

from tests.docs import ROOT


def environment(home: Path) -> dict[str, str]:
    """Nothing of the developer's own lowpass."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("LOWPASS_")}
    command = home / "bin" / "lowpass"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m router.cli "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join((str(command.parent), str(Path(sys.executable).parent), ours.get("PATH", "")))
    return {**ours, "PATH": path, "PYTHONPATH": str(ROOT), "LOWPASS_HOME": str(home)}
