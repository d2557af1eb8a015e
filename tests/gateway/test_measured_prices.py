"""An engine whose hours cost something: every process charges what was measured, and none forgets it when killed."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from router.ledger.engines import GATEWAY, keep
from router.ledger.ledger import SqliteLedger
from router.types.clock import now_ms
from router.types.metered import EnginePrice, version_of
from tests.gateway.running import Gateway, local, ordered, until

NANO = 1_000_000_000
DEAR, CHEAP = 40 * NANO, 10 * NANO
"""nano-USD per million output tokens."""


class _Engine(BaseHTTPRequestHandler):
    """Says nothing of its load, so nobody but the test measures it. A stream goes on until `let_go`."""

    let_go = Event()

    def do_GET(self) -> None:
        self._answer("application/json", json.dumps({"data": [{"id": "m"}]}))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        usage = {"prompt_tokens": 300, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 100}}
        if not asked.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
            return self._answer("application/json", json.dumps({"id": "1", "choices": [choice], "usage": usage}))
        first = {"id": "1", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}
        last = {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
        self._answer("text/event-stream", f"data: {json.dumps(first)}\n\n")
        self.let_go.wait(40)
        self.wfile.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())

    def _answer(self, kind: str, body: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


def policy(url: str, home: Path) -> dict[str, Any]:
    home.mkdir(parents=True)
    spec = home / "paid.yaml"
    engine = {"name": "paid", "engine": "external", "model": "m", "urls": [f"{url}/v1"], "metrics": "none"}
    spec.write_text(json.dumps(engine))
    target = local(url, "m", hourly_usd=1, engine=str(spec))
    del target["base_url"]
    return {"version": 1, "targets": {"engine": target}, "routes": {"auto": ordered("engine")}}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    home, server = tmp_path / "home", ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    Thread(target=server.serve_forever, daemon=True).start()
    found = Gateway(home, policy(f"http://127.0.0.1:{server.server_address[1]}", home)).start("--workers", "2")
    try:
        yield found
    finally:
        _Engine.let_go.set()
        if found.process.poll() is None:
            found.stop()
        server.shutdown()
        server.server_close()


def measured(gateway: Gateway, output: int) -> str:
    """As the meter writes it; the name of the price."""
    now = now_ms()
    price = EnginePrice(
        version=version_of("paid", now),
        engine="paid",
        gateway=GATEWAY,
        since_ms=now,
        input=output // 4,
        cached=output // 400,
        output=output,
        counted="marginal",
        hourly=NANO,
        wall_ms=60_000,
        busy_ms=30_000,
        uncached_tokens=1_000,
        cached_tokens=0,
        output_tokens=1_000,
    )
    keep(SqliteLedger(gateway.ledger), [], [price])
    return price.version


def charged(gateway: Gateway) -> dict[str, Any]:
    """The attempt of one answer."""
    reply = gateway.chat("engine")
    assert reply.status == 200, reply.body
    (attempt,) = gateway.settled(reply.headers["x-request-id"])["attempts"]
    return dict(attempt)


def all_charge(gateway: Gateway, version: str) -> bool:
    """Of some on connections of their own, which either process may take."""
    with ThreadPoolExecutor(4) as pool:
        return {one["price_version"] for one in pool.map(lambda _: charged(gateway), range(8))} == {version}


def test_a_measured_price_is_charged_by_all_processes_and_survives_their_end(gateway: Gateway) -> None:
    until(lambda: gateway.get("/health/ready").json["ready"], 20)
    assert not charged(gateway)["price_version"].startswith("measured")
    dear = measured(gateway, DEAR)
    until(lambda: all_charge(gateway, dear), 20)
    one = charged(gateway)
    tokens = one["input_uncached"] * DEAR // 4 + one["cache_read"] * DEAR // 400 + one["output_visible"] * DEAR
    assert one["cost"] == (tokens + 500_000) // 1_000_000 > 0

    messages: list[Any] = [{"role": "user", "content": "Say hello."}]
    with gateway.client(timeout=50).chat.completions.create(model="engine", messages=messages, stream=True) as stream:
        next(iter(stream))
        cheap = measured(gateway, CHEAP)
        until(lambda: all_charge(gateway, cheap), 20)
        _Engine.let_go.set()
        for _ in stream:
            pass
    streamed = "SELECT a.price_version FROM attempts AS a JOIN requests AS r ON r.id = a.request_id WHERE r.stream = 1"
    assert until(lambda: gateway.values(streamed)) == {(dear,)}, "what was decided before keeps its price"

    gateway.kill()
    gateway.start("--workers", "2")
    until(lambda: gateway.get("/health/ready").json["ready"], 20)
    assert charged(gateway)["price_version"] == cheap
    status, said = gateway.lowpass("ledger", "verify")
    assert (status, said.rpartition(": ")[2].strip()) == (0, "sound")
    status, said = gateway.lowpass("report", "engines", "--json")
    (history,) = json.loads(said)["below"]
    assert [(row["version"], row["output_per_m_usd"]) for row in history["rows"]] == [(cheap, 10), (dear, 40)]
