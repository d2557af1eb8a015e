"""Runs the scripted upstream in a separate process: `python -m router.testing.upstream --port N`."""

import argparse
import asyncio
import sys

from router.testing.upstream.server import CONTROL, SLOW_S, ScriptedServer, listen


async def _serve(port: int, slow_s: float) -> None:
    server = ScriptedServer()
    server.slow_s = slow_s
    listener = await listen(server, port)
    port = listener.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port} (requests: {CONTROL})\n")
    sys.stdout.flush()
    await listener.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--slow-ms", type=int, default=int(SLOW_S * 1000))
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.slow_ms / 1000))
