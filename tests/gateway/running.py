"""Policies for tests, and a gateway as a process of its own, for what is about processes."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from router.testing import CHAT, LIMIT_S, Client, Gateway, Reply, serving, until

__all__ = ["CHAT", "MESSAGES", "ROOT", "Client", "Gateway", "Process", "Reply", "explained", "local", "ordered"]
__all__ += ["processing", "serving", "target", "tried", "until", "usd", "user", "verify_and_move"]

ROOT = Path(__file__).parents[2]
MESSAGES: list[Any] = [{"role": "user", "content": "Say hello."}]
_ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("LOWPASS_")}
"""Before any gateway in this process added its own."""
_ANSWERS = b"lowpass answers at "


def verify_and_move(gateway: Client) -> None:
    """The ledger is sound, as rows of today and as rows of the past."""
    for command in ("verify", "upkeep", "verify"):
        status, output = gateway.lowpass("ledger", command)
        assert status == 0, output


class Process(Client):
    """`lowpass serve` under the policy of `gateway`; `log` holds everything that it printed since its first start."""

    def __init__(self, home: Path, policy: object, environ: Mapping[str, str] | None = None, code: Path = ROOT) -> None:
        """`code`: where the packages are, of another version perhaps."""
        super().__init__(home, policy, environ)
        self._code = code
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, within_s: float = LIMIT_S) -> "Process":
        """Returns once it answers; fails with its output when it ends instead."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = self.popen("serve", "--policy", str(self.policy), "--port", "0", *options, stdout=output)
        self.url = until(lambda: self._greeting(before), within_s)
        return self

    def _greeting(self, before: int) -> str:
        lines = self.log.read_bytes()[before:].splitlines()
        greetings = [line for line in lines if line.startswith(_ANSWERS)]
        assert self.process.poll() is None, self.log.read_text()
        return greetings[0].split()[3].decode() if greetings and len(lines) > 3 else ""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def popen(self, *arguments: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Any `lowpass` command on this gateway's home."""
        return subprocess.Popen(
            [sys.executable, "-m", "router.cli", *arguments],
            cwd=self._code,
            env=_ENVIRON | {"LOWPASS_HOME": str(self.home)} | self.environ,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        connection = http.client.HTTPConnection(*self.address, timeout=LIMIT_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()


@contextmanager
def processing(home: Path, policy: object, environ: Mapping[str, str] | None = None) -> Iterator[Process]:
    """A started process; a test may end it before."""
    gateway = Process(home, policy, environ).start()
    try:
        yield gateway
    finally:
        if gateway.process.poll() is None:
            gateway.stop()


def target(url: str, behaviour: str, **row: Any) -> dict[str, Any]:
    """A remote target of the scripted upstream. `flavour` and `provider` say who it is; `price` is USD per million."""
    flavour, provider = row.pop("flavour", "openai"), row.pop("provider", "openai")
    model = {
        "name": behaviour,
        "provider": provider,
        "context": row.pop("context", 100_000),
        "max_output": row.pop("max_output", 1_000),
        "capabilities": row.pop("capabilities", ["chat", "tools", "json_schema", "n", "completions", "embeddings"]),
        "price": row.pop("price", {"input": 1, "output": 2}),
        "thinking": row.pop("thinking", None),
    }
    row = {"retries": 0, "api_key": "sk-upstream", **row}
    return {"model": {k: v for k, v in model.items() if v is not None}, "base_url": f"{url}/{flavour}/v1", **row}


def local(url: str, behaviour: str, **row: Any) -> dict[str, Any]:
    """The same on the user's own machine."""
    return target(url, behaviour, flavour="vllm", provider="vllm", **row)


def ordered(*targets: str) -> dict[str, Any]:
    return {"strategy": {"kind": "ordered", "targets": list(targets)}}


def user(content: object) -> list[Any]:
    """The messages of a chat that begins with it."""
    return [{"role": "user", "content": content}]


def tried(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Target and outcome of each attempt."""
    return [(attempt["target"], attempt["outcome"]) for attempt in row["attempts"]]


def explained(gateway: Client, body: object, *options: str) -> tuple[dict[str, Any], str]:
    """What `lowpass explain` says of a request: its document and its table."""
    path = gateway.home / "request.json"
    path.write_text(json.dumps(body))
    words = ("explain", str(path), "--policy", str(gateway.policy), *options)
    (status, output), (_, table) = gateway.lowpass(*words, "--json"), gateway.lowpass(*words)
    assert status == 0, output
    return json.loads(output), table


def usd(nano: int) -> float:
    return nano / 1e9
