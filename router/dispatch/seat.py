"""An attempt's place among what its replica is at work on."""

from router.engines.replicas import Replicas
from router.types.request import Request
from router.types.target import Target


class Seat:
    """Taken when it is made; `url` is that of the replica. It has to be left, and leaving it again changes nothing."""

    __slots__ = ("_replicas", "_taken", "_target", "url")

    def __init__(self, replicas: Replicas, target: Target, request: Request | None, tried: list[str]) -> None:
        """`request`: None where no client sent it. `tried`: replicas that failed before; this one joins them."""
        self._replicas, self._target, self._taken = replicas, target, True
        self.url = replicas.pick(target, request, tried)
        tried.append(self.url)

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            self._replicas.done(self.url)

    def worked(self) -> None:
        self._replicas.succeeded(self.url)

    def full(self) -> None:
        self._replicas.full(self._target, self.url)

    def broke(self) -> bool:
        """Whether the whole target did, and not this replica alone."""
        return self._replicas.failed(self._target, self.url)
