"""Verifiers as an operator may write them: good, broken and hostile ones."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Function = Callable[[dict[str, Any], dict[str, Any]], float | None]


SCORES: tuple[float | None, ...] = (0.5, None, 7.0, float("nan"))
half, unsure, too_much, nan = (lambda answer, request, score=score: score for score in SCORES)


def long_enough(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    return len(answer["text"]) >= len(request["messages"][0]["content"])


def hangs(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    """If the answer names a file. With a child of its own, that must not outlive it; its number goes into the file."""
    if answer["text"]:
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(answer["text"], "w") as file:
            file.write(str(sleeper.pid))
        time.sleep(600)
    return True


def raises(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    raise ValueError(answer["text"])


def dies(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    if answer["text"] == "die":
        os.abort()
    return True


def leaves(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    sys.exit(answer["text"])


def hoards(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    return len(bytearray(2 << 30)) > 0


def rambles(answer: dict[str, Any], request: dict[str, Any]) -> Any:
    return answer["text"] * 100_000


def prints(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    """Neither can be mistaken for what it returns."""
    print('{"score": 0}', flush=True)  # noqa: T201
    print(answer["text"], file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.read() == ""


def calls_home(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    socket.create_connection(("127.0.0.1", int(answer["text"]))).close()
    return True


def secrets(answer: dict[str, Any], request: dict[str, Any]) -> bool:
    """Whether it can see what only the gateway may."""
    return not any("SECRET" in name for name in os.environ)
