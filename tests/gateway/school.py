"""An upstream of pupils: the model's name says who answers, and a test says what each of them makes of a question."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.running import Gateway, Reply, local, target

INPUT, OUTPUT = 20, 10
"""Tokens of every question and of every answer."""


VERIFIER = "verify"
"""The pupil that is asked at `/verify`, as a verifier is: `says` is the whole of its answer."""


class Pupil(Struct):
    """`says`: the whole body of a request → the text of the answer."""

    says: Callable[[dict[str, Any]], str]
    name: str = ""
    """The model that it says it is, if not the one that was asked for."""
    slow_s: float = 0.0
    status: int = 200


class School(ThreadingHTTPServer):
    """`asked` collects pupil and body of each request, in order; `keys` what they were authorised by."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, pupils: dict[str, Pupil]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pupils = pupils
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.keys: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def of(self, pupil: str) -> list[dict[str, Any]]:
        """What it was asked."""
        return [body for name, body in self.asked if name == pupil]


def question(body: dict[str, Any]) -> str:
    """What its client said last."""
    return str(body["messages"][-1]["content"])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: School

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = VERIFIER if self.path == f"/{VERIFIER}" else body["model"]
        pupil = self.server.pupils[name]
        self.server.asked.append((name, body))
        self.server.keys.add(self.headers.get("authorization", ""))
        time.sleep(pupil.slow_s)
        if name == VERIFIER:
            return self._send(pupil.status, pupil.says(body).encode())
        if pupil.status != 200:
            return self._send(pupil.status, json.dumps({"error": {"message": "no", "type": "server_error"}}).encode())
        said, model = pupil.says(body), pupil.name or name
        head = {"id": "s", "created": 1, "model": model}
        usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
        if body.get("stream"):
            return self._send(200, _events(head, said, usage), "text/event-stream")
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return self._send(200, json.dumps(whole).encode())

    def _send(self, status: int, data: bytes, content: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", content)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        with suppress(ConnectionError):  # the gateway had enough
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def _events(head: dict[str, Any], said: str, usage: dict[str, int]) -> bytes:
    chunk = {**head, "object": "chat.completion.chunk"}
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        *({"content": word} for word in re.findall(r"\S+\s*", said)),
    ]
    events: list[dict[str, Any]] = [_piece(chunk, delta, None) for delta in deltas]
    events += [_piece(chunk, {}, "stop"), {**chunk, "choices": [], "usage": usage}]
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def _piece(chunk: dict[str, Any], delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@contextmanager
def schooling(**pupils: Pupil) -> Iterator[School]:
    school = School(pupils)
    thread = Thread(target=school.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield school
    finally:
        school.shutdown()
        school.server_close()
        thread.join(10)


CHEAP = {"input": 0.1, "output": 0.2}
DEAR = {"input": 20, "output": 40}
"""USD per million tokens."""
CHEAP_NANO = INPUT * 100 + OUTPUT * 200
DEAR_NANO = INPUT * 20_000 + OUTPUT * 40_000
"""Of one answer."""


def seat(url: str, pupil: str, price: Mapping[str, float], score: float, **row: Any) -> dict[str, Any]:
    """A remote target. `score`: what a public benchmark says of it."""
    return _scored(target(url, pupil, price=price, **row), score)


def at_home(url: str, pupil: str, price: Mapping[str, float], score: float, **row: Any) -> dict[str, Any]:
    """The same on the user's own machine."""
    return _scored(local(url, pupil, price=price, **row), score)


def _scored(row: dict[str, Any], score: float) -> dict[str, Any]:
    return {**row, "model": {**row["model"], "scores": {"mmlu_pro": score}}}


def product(one: int, other: int) -> str:
    return f"Compute the product of {one} and {other}."


def house(number: int) -> str:
    return f"Translate into French: the house with the number {number} is red."


def expected(text: str) -> str:
    """The right answer's number."""
    found = [int(number) for number in re.findall(r"\d+", text)]
    return str(found[0] * found[1] if "product" in text else found[0])


def able(body: dict[str, Any]) -> str:
    """Always right."""
    return f"The answer is {expected(question(body))}."


def weak(body: dict[str, Any]) -> str:
    """Wrong at maths, right at translations."""
    return "The answer is 7." if "product" in question(body) else able(body)


def learned(gateway: Gateway) -> float:
    """Outcomes that this gateway has learned from."""
    return metric(gateway, "lowpass_outcomes_total", result="learned")


def metric(gateway: Gateway, name: str, **labels: str) -> float:
    """The sum over all other labels."""
    families = text_string_to_metric_families(gateway.get("/metrics").body.decode())
    samples = [one for family in families for one in family.samples if one.name == name]
    return sum(one.value for one in samples if labels.items() <= one.labels.items())


def decision(gateway: Gateway, reply: Reply) -> dict[str, Any]:
    return gateway.get(f"/v1/decisions/{reply.headers['x-request-id']}").json


def weighed(gateway: Gateway, reply: Reply) -> dict[str, dict[str, Any]]:
    """What its decision expected of each target."""
    return {one["target"]: one for one in decision(gateway, reply)["weighed"]}


def text_of(reply: Reply) -> str:
    return str(reply.json["choices"][0]["message"]["content"])
