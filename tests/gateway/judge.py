"""A local engine that says yes or no to what it is asked for an opinion of, or behaves as engines do that are ill."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

SLOW_S = 1.5
_QUESTION = re.compile(r'^(\d+)\. Text: (".*")$', re.MULTILINE)
_MARKED = re.compile("⟦(.*?)⟧")
Says = Callable[[str], str]
"""(the text around a value, with its marks) → what is said of it."""


class Judge(ThreadingHTTPServer):
    """`says` answers each question; a text in its place is the whole answer. `bodies` keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.says: Says | str = "yes"
        self.status, self.slow, self.cuts = 200, False, False
        self.bodies: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def asked(self) -> list[list[str]]:
        """The values of each question."""
        return [[_MARKED.findall(text)[0] for _, text in questions(body)] for body in self.bodies]

    def heal(self) -> None:
        self.says, self.status, self.slow, self.cuts = "yes", 200, False, False
        self.bodies.clear()

    def answer(self, body: str) -> str:
        says = self.says
        if isinstance(says, str):
            return says
        return json.dumps({number: says(text) for number, text in questions(body)})


def questions(body: str) -> list[tuple[str, str]]:
    """Number and text."""
    told = json.loads(body)["messages"][-1]["content"]
    return [(number, json.loads(text)) for number, text in _QUESTION.findall(told)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Judge

    def do_POST(self) -> None:
        judge = self.server
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        judge.bodies.append(body)
        time.sleep(SLOW_S if judge.slow else 0)
        if judge.cuts:
            self.close_connection = True
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": judge.answer(body)}, "finish_reason": "stop"}
        answer: dict[str, Any] = {"id": "j", "object": "chat.completion", "created": 1, "model": "judge"}
        data = json.dumps({**answer, "choices": [choice]}).encode()
        self.send_response(judge.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def judging() -> Iterator[Judge]:
    judge = Judge()
    thread = Thread(target=judge.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield judge
    finally:
        judge.shutdown()
        judge.server_close()
        thread.join(10)
