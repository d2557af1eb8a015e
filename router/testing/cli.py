"""Runs `lowpass` commands inside the test's process: a command takes milliseconds instead of a second."""

import os
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from router.cli import app


class Done(NamedTuple):
    """A command that has ended. `output` is `out` and `error` as a terminal shows them."""

    status: int
    out: str
    error: str
    output: str


def lowpass(home: Path, *words: str, **environ: str) -> Done:
    """Runs the command `lowpass *words` for the state in `home`.

    Of the variables `LOWPASS_…` the command sees `environ` alone. An exception that the command does not handle is
    raised: in a process it would end in a traceback.
    """
    ours: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith("LOWPASS_"))
    result = CliRunner().invoke(app, words, env=ours | {"LOWPASS_HOME": str(home)} | environ)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr, result.output)
