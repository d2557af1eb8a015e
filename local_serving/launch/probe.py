"""What an engine says of itself over HTTP: whether it is well, what it serves, how much it has to do."""

import asyncio
import ssl
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

LIMIT_S = 5.0
"""An engine whose processes are busy with long prompts takes seconds to say that it is well."""
_MOST_BYTES = 4_000_000
_GAUGES = (
    *("vllm:num_requests_running", "vllm:num_requests_waiting"),
    *("llamacpp:requests_processing", "llamacpp:requests_deferred"),
)


class Reply(NamedTuple):
    status: int
    """0: that was not HTTP."""
    body: bytes


class Stranger(Exception):
    """Something answers there, and it is not the engine; says what."""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class _Load(msgspec.Struct):
    server_load: int


async def serves(url: str, names: Collection[str]) -> bool:
    """Whether the engine at the base URL is well and has one of `names`. Raises `OSError` and `Stranger`.

    A bare 200 says nothing: whatever took the port might give it. Who has no /health is well if it has the name.
    """
    health = await ask(url, "/health")
    if health.status not in (200, 401, 403, 404):
        return False
    models = await ask(url, "/v1/models")
    if models.status in (401, 403) and health.status == 200:
        return True  # it wants a key, which only the policy has
    served = _named(models)
    if served is None or served.isdisjoint(names):
        raise Stranger(_answered(url, models, served, names))
    return True


async def well(url: str) -> bool:
    """Whether GET /health gives 200 in time."""
    try:
        return (await ask(url, "/health")).status == 200
    except OSError:
        return False


async def busy(url: str) -> int | None:
    """Requests in it, running and waiting; None: it does not say."""
    try:
        metrics = await ask(url, "/metrics")
    except OSError:
        return None
    return _gauged(metrics.body.decode(errors="replace")) if metrics.status == 200 else None


async def calls(url: str) -> int:
    """Requests that have reached vLLM's server and are not answered, those included that wait while it sleeps."""
    try:
        return msgspec.json.decode((await ask(url, "/load")).body, type=_Load).server_load
    except (OSError, msgspec.MsgspecError):
        return 0


async def ask(url: str, path: str, method: str = "GET", limit_s: float = LIMIT_S) -> Reply:
    """`path` is of the server's root, whatever the base URL's. Raises `OSError`, and so `TimeoutError`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    # As HTTP/1.0, so that the answer is not chunked and ends with the connection.
    head = f"{method} {_root(parts.path)}{path} HTTP/1.0\r\nHost: {parts.netloc}\r\nContent-Length: 0\r\n\r\n"
    async with asyncio.timeout(limit_s):
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
        try:
            writer.write(head.encode())
            return _reply(await _all(reader))
        finally:
            writer.close()


async def _all(reader: asyncio.StreamReader) -> bytes:
    answer = b""
    while len(answer) < _MOST_BYTES and (piece := await reader.read(65536)):
        answer += piece
    return answer


def _reply(answer: bytes) -> Reply:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return Reply(0, b"")
    return Reply(int(words[1]), body)


def _root(path: str) -> str:
    return path.rstrip("/").removesuffix("/v1")


def _named(models: Reply) -> set[str] | None:
    """What it serves; None: that is no list of models."""
    try:
        return {model.id for model in msgspec.json.decode(models.body, type=_Models).data}
    except msgspec.MsgspecError:
        return None


def _answered(url: str, models: Reply, served: set[str] | None, names: Collection[str]) -> str:
    parts = urlsplit(url)
    where = f"port {parts.port} is" if parts.hostname == "127.0.0.1" else f"{url} is"
    if served is None:
        return f"{where} answered by something else: its /v1/models ({models.status}) is no list of models"
    has = ", ".join(sorted(served)[:5]) or "nothing"
    return f"{where} answered by something else: it serves {has}, not {', '.join(names)}"


def _gauged(metrics: str) -> int | None:
    lines = [line for line in metrics.splitlines() if line.split("{")[0].split(" ")[0] in _GAUGES]
    return sum(int(float(line.split()[-1])) for line in lines) if lines else None
