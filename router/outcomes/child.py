"""The child: calls a function that is named to it, and says what that said. `python -m router.outcomes.child`.

Its standard output is a pipe to the gateway, so whatever a function prints goes nowhere instead.
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
LOOK_S = 1.0
"""How often the gateway is looked for: a function that hangs must not outlive it."""


def main() -> None:
    """`argv`: the function, and the megabytes that it may use."""
    # What stands in for standard input and output from now on is empty.
    answers, questions = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    # The address space, also of those that it starts. No core is left behind: it would hold prompts.
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_no_network)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    module, _, name = sys.argv[1].partition(":")
    function: Function = getattr(import_module(module), name)
    _write(answers, {"ready": True})
    for line in questions:
        _write(answers, _called(function, json.loads(line)))


def _end_with(parent: int) -> None:
    """And all that was started here: it is a group of its own."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.killpg(0, signal.SIGKILL)


def _no_network(event: str, arguments: tuple[Any, ...]) -> None:
    """What it is told stays here. No sandbox: it keeps libraries from calling home, not code that means to."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        raise PermissionError("a verifier in Python has no network: use kind: http")


def _called(function: Function, arguments: list[Any]) -> dict[str, Any]:
    try:
        return _score(function(*arguments))
    except MemoryError:
        # Whatever else it needed may be lacking too: a fresh process is better.
        os._exit(1)
    except BaseException as error:  # also what only means to end this process
        return {"failed": type(error).__name__}


def _score(answer: Any) -> dict[str, Any]:
    """A score from 0 to 1, a yes or no, or nothing. Arrays of one number are one."""
    if answer is None:
        return {"score": None}
    if isinstance(answer, str | bytes):
        return {"nonsense": True}
    try:
        score = float(answer)
    except (TypeError, ValueError, OverflowError):
        return {"nonsense": True}
    return {"score": score} if math.isfinite(score) and 0 <= score <= 1 else {"nonsense": True}


def _write(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
