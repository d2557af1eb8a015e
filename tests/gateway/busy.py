"""An engine that somebody else runs, in vLLM's words: as busy as a test says, and it may turn requests away."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

SLOTS = 2
MODEL = "busy-model"
TAKES_S = 0.3
"""An answer: else it would be learned that its queues are short, however many wait."""
_FULL = {"message": "The engine is busy.", "type": "Service Unavailable", "param": None, "code": 503}


class Busy(ThreadingHTTPServer):
    """Answers every chat, and none later than others, whatever it says of itself."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.running = self.waiting = self.asked = 0
        self.model = ""
        """That it was asked for last."""
        self.full, self.well, self.tells = False, True, True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def page(self) -> str:
        labels = f'{{engine="0",model_name="{MODEL}"}}'
        gauges = {
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "kv_cache_usage_perc": 0.5,
        }
        counts = {"num_preemptions_total": 3}
        lines = [f"vllm:{name}{labels} {value}" for name, value in (gauges | counts).items()]
        rejected = f'vllm:admission_rejections_total{{model_name="{MODEL}",reason="requests"}} 7'
        return "\n".join([*lines, rejected, ""])

    def spec(self, folder: Path, **more: Any) -> str:
        """Path of its spec, as policies name it."""
        path = folder / "busy.yaml"
        rows = {"name": "busy", "engine": "external", "model": MODEL, "urls": [self.url], "parallel": SLOTS, "gpus": 0}
        path.write_text(json.dumps(rows | more))
        return str(path)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Busy

    def do_GET(self) -> None:
        if self.path == "/metrics":
            return self._answer(200 if self.server.tells else 404, self.server.page.encode())
        if self.path == "/health":
            return self._answer(200 if self.server.well else 500, b"")
        self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.model = body["model"]
        self.server.asked += 1
        if self.server.full:
            return self._json(503, {"error": _FULL})
        time.sleep(TAKES_S)
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL}
        self._json(200, {**head, "choices": [choice], "usage": usage})

    def _json(self, status: int, content: Any) -> None:
        self._answer(status, json.dumps(content).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def busy() -> Iterator[Busy]:
    server = Busy()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
