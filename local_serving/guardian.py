"""A parent that never hangs: it starts an engine, and sees to it that nothing of it outlives whoever wanted it.

`python -I -S guardian.py COMMAND…`: says "guards PID" and is the parent of the engine, which has a group of its own.
When its standard input ends, whoever wanted the engine is gone: SIGTERM, a moment, SIGKILL to the whole group. SIGTERM
to it is passed on. When the engine ends, what is left of its group is killed, and the status is the engine's (128 + N:
ended by signal N, as shells say it). It knows the standard library only, so that it is small and starts at once.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

GUARDS = "guards "
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL once nobody is left who wants answers."""
_PR_SET_PDEATHSIG = 1
"""<linux/prctl.h>"""


def main(command: list[str]) -> int:
    bell = _bell()
    try:
        # The engine's input is a pipe from here: what reads it until its end, ends even if this process is killed.
        engine = subprocess.Popen(  # noqa: S603 - the spec is the operator's
            command, stdin=subprocess.PIPE, process_group=0, preexec_fn=_dying_with_us()
        )
    except OSError as error:
        sys.stdout.write(f"can't run {command[0]}: {error.strerror}\n")
        return 127
    sys.stdout.write(f"{GUARDS}{engine.pid}\n")
    sys.stdout.flush()
    if _until_unwanted(engine, bell):
        engine.terminate()
        deadline = monotonic() + GRACE_S
        while engine.poll() is None and (left := deadline - monotonic()) > 0:
            if select.select([bell], [], [], left)[0]:
                os.read(bell, 64)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(engine.pid, signal.SIGKILL)
    status = engine.wait()
    return status if status >= 0 else 128 - status


def _bell() -> int:
    """Readable whenever a signal came: each is a byte, its number."""
    ear, bell = os.pipe()
    os.set_blocking(bell, False)
    os.set_blocking(ear, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(bell)
    return ear


def _until_unwanted(engine: "subprocess.Popen[bytes]", bell: int) -> bool:
    """Whether the engine still runs, though nobody wants it any more."""
    while engine.poll() is None:
        readable, _, _ = select.select([0, bell], [], [])
        if bell in readable and signal.SIGTERM in os.read(bell, 64):
            engine.terminate()
        if 0 in readable and not os.read(0, 64):
            return engine.poll() is None
    return False


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
