"""The child process of a Python verifier, `python -m router.outcomes.child`: calls a function, returns its results.

Its standard output is a pipe to the gateway, so what the function prints is discarded.
"""

import json
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO

Function = Callable[..., Any]
PARENT_CHECK_S = 1.0
"""Interval in seconds at which the child checks that the gateway is alive, so that it never outlives it."""


def main() -> None:
    """Serves calls until standard input ends. `argv`: the function, and its memory limit in megabytes."""
    # Keep the pipes to the gateway; the function gets empty standard input and output.
    replies, calls = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    null_device = os.open(os.devnull, os.O_RDWR)
    os.dup2(null_device, 0)
    os.dup2(null_device, 1)
    # Limits the address space, of subprocesses too. No core dumps: they would hold prompts.
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_no_network)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    module, _, name = sys.argv[1].partition(":")
    function: Function = getattr(import_module(module), name)
    _write_reply(replies, {"ready": True})
    for line in calls:
        _write_reply(replies, _call(function, json.loads(line)))


def _end_with_parent(parent: int) -> None:
    """Kills this process group, with all that was started here, once the parent has ended."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os.killpg(0, signal.SIGKILL)


def _no_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook that denies network access. It stops libraries from sending data, but is no sandbox against intent."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        raise PermissionError("a verifier in Python has no network: use kind: http")


def _call(function: Function, arguments: list[Any]) -> dict[str, Any]:
    try:
        return _reply_for_score(function(*arguments))
    except MemoryError:
        # Other memory that it needs may be lacking too, so let a new process take over.
        os._exit(1)
    except BaseException as error:  # also what would end this process
        return {"failed": type(error).__name__}


def _reply_for_score(answer: Any) -> dict[str, Any]:
    """Returns the reply for a score from 0 to 1, a boolean, None, or an array of one number."""
    if answer is None:
        return {"score": None}
    if isinstance(answer, str | bytes):
        return {"nonsense": True}
    try:
        score = float(answer)
    except (TypeError, ValueError, OverflowError):
        return {"nonsense": True}
    return {"score": score} if math.isfinite(score) and 0 <= score <= 1 else {"nonsense": True}


def _write_reply(replies: BinaryIO, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply).encode() + b"\n")
    replies.flush()


if __name__ == "__main__":
    main()
