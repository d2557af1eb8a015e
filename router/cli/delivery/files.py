"""Files that are there whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from router.cli.delivery.tries import Undelivered


def put(path: Path, content: bytes) -> None:
    """Replaces what was there, in one step. Raises `Undelivered`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _write(beside, content)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise Undelivered(f"{path} can't be written ({error.strerror})") from None


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
