"""An engine that does as its environment says: what vLLM does when it is slow, broken, hung, or not vLLM at all.

Started as a spec's `python`, it understands vLLM's command line and serves what the supervisor looks at.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

ARGUMENTS = sys.argv[1:]
MANNER = os.environ.get("MANNER", "")
STATE: dict[str, Any] = {"sleeping": False, "load": 0, "well": True, "looks": 0}


def option(name: str) -> str:
    return ARGUMENTS[ARGUMENTS.index(name) + 1]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if MANNER == "yes to all":
            return self._answer({"status": "fine"})
        path = self.path.partition("?")[0]
        if path == "/health":
            return self._answer({}, 200 if STATE["well"] else 503)
        if path == "/metrics":
            STATE["looks"] += 1
            return self._send(f'vllm:num_requests_running{{engine="0"}} {STATE["load"]}.0\n'.encode())
        served = ARGUMENTS[ARGUMENTS.index("--served-model-name") + 1 : ARGUMENTS.index("--host")]
        answers: dict[str, object] = {
            "/v1/models": {"object": "list", "data": [{"id": name} for name in served]},
            "/looks": STATE["looks"],
            "/load": {"server_load": STATE["load"]},
            "/environment": dict(os.environ),
            "/arguments": ARGUMENTS,
            "/is_sleeping": {"is_sleeping": STATE["sleeping"]},
        }
        self._answer(answers.get(path, {}), 200 if path in answers else 404)

    def do_POST(self) -> None:
        path, _, query = self.path.partition("?")
        if path in ("/sleep", "/wake_up"):
            STATE["sleeping"] = path == "/sleep"
        elif path == "/say":
            say(unquote(query))
        elif path == "/set":
            name, _, value = query.partition("=")
            STATE[name] = json.loads(value)
        self._answer({})

    def _answer(self, content: object, status: int = 200) -> None:
        self._send(json.dumps(content).encode(), status)

    def _send(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    if MANNER.startswith("says "):
        say(MANNER.removeprefix("says "))
        say("RuntimeError: Engine core initialization failed. See root cause above.")
        sys.exit(1)
    if MANNER == "never ready":
        say("INFO 11-21 20:34:11 [core.py:1] Loading weights")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if MANNER == "with workers":  # as vLLM's core: it holds the output open and does not mind SIGTERM
        sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        worker = subprocess.Popen([sys.executable, "-c", sleeper])
        say(f"worker {worker.pid}")
    ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
