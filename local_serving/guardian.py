"""The parent process of an engine, which ends the engine when the process that wanted it is gone.

`python -I -S guardian.py COMMAND…` starts the engine in its own process group and prints "guards PID". When standard
input ends, it sends the engine SIGTERM and, after `GRACE_S`, SIGKILL to its group. SIGTERM is passed on. When the
engine ends, the rest of its group is killed, and its exit status is returned (128 + N for signal N, as in shells). The
guardian uses the standard library only, so that it is small and starts at once.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from time import sleep

GUARDS = "guards "
GRACE_S = 5.0
"""Time in seconds between SIGTERM and SIGKILL, once standard input has ended."""
_PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""


def main(command: list[str]) -> int:
    try:
        # The engine's stdin is a pipe from here: an engine that reads it until its end ends with this process.
        engine = subprocess.Popen(  # noqa: S603 - the spec is the operator's
            command, stdin=subprocess.PIPE, process_group=0, preexec_fn=_dying_with_us()
        )
    except OSError as error:
        sys.stdout.write(f"can't run {command[0]}: {error.strerror}\n")
        return 127
    signal.signal(signal.SIGTERM, lambda *_: engine.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.stdout.write(f"{GUARDS}{engine.pid}\n")
    sys.stdout.flush()
    Thread(target=_end_unwanted, args=(engine,), daemon=True).start()
    status = engine.wait()
    _kill(engine)
    return status if status >= 0 else 128 - status


def _end_unwanted(engine: "subprocess.Popen[bytes]") -> None:
    """Ends the engine once standard input has ended."""
    while os.read(0, 64):
        pass
    engine.terminate()
    sleep(GRACE_S)
    _kill(engine)


def _kill(engine: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(engine.pid, signal.SIGKILL)


def _dying_with_us() -> Callable[[], None] | None:
    """Returns a function that lets the engine be killed with this process, on Linux; its children are not included."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the guardian was killed just before
            os._exit(1)

    return bind


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
