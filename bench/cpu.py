"""CPU time of a process and all its children, read from Linux to the microsecond."""

import os
import time
from contextlib import suppress
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def tree_seconds(pid: int) -> float:
    """User and system seconds spent so far by a process, its threads and its descendants, ended ones included.

    Raises ProcessLookupError if the process is gone.
    """
    total = _own_seconds(pid) + _reaped_seconds(pid)
    for member in descendants(pid):
        with suppress(ProcessLookupError):  # it ended since it was listed; its parent carries its time from now on
            total += _own_seconds(member) + _reaped_seconds(member)
    return total


def descendants(pid: int) -> list[int]:
    """The living descendants of a process."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found[1:]


def model() -> str:
    """The processor's name, as the kernel gives it."""
    lines = (_PROC / "cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )


def _own_seconds(pid: int) -> float:
    # Linux names a process's CPU clock (~pid << 3) | CPUCLOCK_SCHED (2, include/linux/posix-timers_types.h): it counts
    # utime + stime of /proc/PID/stat, in nanoseconds instead of ticks.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error


def _reaped_seconds(pid: int) -> float:
    children_user, children_system = _stat(pid)[13:15]
    return (int(children_user) + int(children_system)) * _TICK_S


def _parents() -> list[tuple[int, int]]:
    pairs = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                pairs.append((int(entry.name), int(_stat(int(entry.name))[1])))
            except ProcessLookupError:
                continue
    return pairs


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: the second is a name that may hold spaces and brackets."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(f"no process {pid}") from error
