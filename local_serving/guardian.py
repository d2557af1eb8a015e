"""A parent that never hangs: it starts an engine, and sees to it that nothing of it outlives whoever wanted it.

`python -I -S guardian.py COMMAND…`: says "guards PID" and is the parent of the engine, which has a group of its own.
When its standard input ends, whoever wanted the engine is gone: SIGTERM, a moment, SIGKILL to the whole group. SIGTERM
to it is passed on. When the engine ends, what is left of its group is killed, and the status is the engine's (128 + N:
ended by signal N, as shells say it). It knows the standard library only, so that it is small and starts at once.
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
"""Between SIGTERM and SIGKILL once nobody is left who wants answers."""
_PR_SET_PDEATHSIG = 1
"""<linux/prctl.h>"""


def main(command: list[str]) -> int:
    try:
        # The engine's input is a pipe from here: what reads it until its end, ends even if this process is killed.
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
    """Ends the engine once nobody wants it any more."""
    while os.read(0, 64):
        pass
    engine.terminate()
    sleep(GRACE_S)
    _kill(engine)


def _kill(engine: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(engine.pid, signal.SIGKILL)


def _dying_with_us() -> Callable[[], None] | None:
    """For the engine itself; what it starts is for its group, and for whoever finds the guardian killed."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed just before
            os._exit(1)

    return bind


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
