"""Posts to an operator's webhook, in the background and with a bounded number of tries."""

import asyncio
import logging
from urllib.parse import urlsplit

from router.dispatch.door import Door, KeptIn
from router.errors import UpstreamFailure
from router.types.call import UpstreamRequest
from router.types.target import Timeouts

WAITS_S = (1.0, 2.0, 4.0, 8.0)
"""Between the tries: five in all."""
MOST_WAITING = 1_000
"""Posts under way at once; beyond that they are dropped, and the log says so."""
_TIMEOUTS = Timeouts(connect=5_000, first=5_000, between=5_000, total=5_000)
_HEADERS = (("content-type", "application/json"), ("user-agent", "lowpass"))
_log = logging.getLogger(__name__)


class Webhooks:
    """Use inside one running event loop. The log names the host only: an address may hold a secret."""

    def __init__(self, door: Door, waits_s: tuple[float, ...] = WAITS_S) -> None:
        self._door, self._waits_s = door, waits_s
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def post(self, url: str, body: bytes) -> None:
        """Returns at once."""
        if self.pending >= MOST_WAITING:
            _log.error("an alert was not posted to %s: %d are waiting", urlsplit(url).hostname, MOST_WAITING)
            return
        task = asyncio.get_running_loop().create_task(self._deliver(url, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Gives up what was not delivered yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _deliver(self, url: str, body: bytes) -> None:
        for wait_s in (*self._waits_s, None):
            answer = await self._try(url, body)
            if answer == "":
                return
            if wait_s is None:
                _log.error("an alert was not delivered: %s %s", urlsplit(url).hostname, answer)
            else:
                await asyncio.sleep(wait_s)

    async def _try(self, url: str, body: bytes) -> str:
        """What went wrong; empty for a 2xx."""
        try:
            response = await self._door.post(url, UpstreamRequest("POST", "", _HEADERS, body), _TIMEOUTS)
        except UpstreamFailure as failure:
            return f"failed ({failure.failure.kind})"
        except KeptIn:
            return "may not have it"
        except Exception as error:  # whatever it is, it must not end the gateway's own work
            return f"failed ({type(error).__name__})"
        response.close()
        return "" if 200 <= response.status < 300 else f"answered {response.status}"
