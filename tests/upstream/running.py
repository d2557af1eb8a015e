"""The server in a thread of its own, for tests in any style."""

import asyncio
import threading
from types import TracebackType

from tests.upstream.recorded import Recorded
from tests.upstream.server import Server


async def listen(server: Server, port: int) -> asyncio.Server:
    """On loopback; port 0 takes a free one."""
    return await asyncio.get_running_loop().create_server(server.connect, "127.0.0.1", port)


class Upstream(Server):
    """`with Upstream() as upstream:` listens on a free port of the loopback until the block ends."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scripted upstream", daemon=True)
        self._listening = threading.Event()

    def __enter__(self) -> "Upstream":
        self._thread.start()
        assert self._listening.wait(10), "the scripted upstream does not listen"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def base_url(self, flavour: str) -> str:
        """The `/v1` of an OpenAI-compatible flavour, as an `openai` client wants it."""
        return f"{self.url}/{flavour}/v1"

    @property
    def last(self) -> Recorded:
        """The latest request."""
        return self.requests[-1]

    def _run(self) -> None:
        listener = self._loop.run_until_complete(listen(self, 0))
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        self._listening.set()
        self._loop.run_forever()
        listener.close()
        self._loop.run_until_complete(self._stop())
        self._loop.close()

    async def _stop(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self.connections:
            connection.close()
        await asyncio.sleep(0)  # a transport closes its socket one turn later
