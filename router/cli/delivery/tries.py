"""Once more after a failure that may pass."""

import time
from collections.abc import Callable

WAITS_S = (1.0, 2.0, 4.0)
"""Between the tries: four in all."""
TIMEOUT_S = 10.0
"""For each step of a connection."""


class Undelivered(Exception):
    """Says in one line where to, and why not; never a secret."""


class Passing(Exception):
    """May be gone the next time; says what it was."""


def insist(step: Callable[[], None], where: str, waits_s: tuple[float, ...] = WAITS_S) -> None:
    """Raises `Undelivered`, once `step` has failed each time."""
    for wait_s in (*waits_s, None):
        try:
            return step()
        except Passing as failure:
            if wait_s is None:
                raise Undelivered(f"{where} {failure}, {len(waits_s) + 1} times") from None
        time.sleep(wait_s)
