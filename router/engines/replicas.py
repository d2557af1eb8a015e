"""Which replica of an engine a request goes to, and what each has been sent."""

from collections import Counter

from router.types.request import Request
from router.types.target import Target


class Replicas:
    """Of one process; use inside its event loop."""

    def __init__(self) -> None:
        self._sent: Counter[str] = Counter()

    def pick(self, target: Target, request: Request) -> str:
        """The base URL of the replica that `request` goes to. Every pick is followed by one `done`."""
        self._sent[target.base_url] += 1
        return target.base_url

    def done(self, url: str) -> None:
        """The replica has nothing more to do for it."""
        self._sent[url] -= 1

    def sent(self, url: str) -> int:
        """Requests of this process that it has not finished."""
        return self._sent[url]
