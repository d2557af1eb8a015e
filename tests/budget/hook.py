"""An operator's web server that alerts are posted to."""

import json
from decimal import Decimal
from threading import Event
from typing import Any

from router.testing.upstream import Page, Recorded, Upstream

SECRET = "t0ken-in-the-address"


class Hook(Upstream):
    """Answers with the statuses of `script` in turn, then with 200; keeps what it was sent.

    While `awake` is cleared, answers are kept back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: list[int] = []
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.awake = Event()
        self.awake.set()

    def __exit__(self, *error: Any) -> None:
        self.awake.set()
        super().__exit__(*error)

    def page(self, request: Recorded) -> Page:
        self.awake.wait(60)
        self.got.append((f"{request.path}?{request.query}", json.loads(request.body, parse_float=Decimal)))
        return Page(status=self.script.pop(0) if self.script else 200)

    @property
    def address(self) -> str:
        return f"{self.url}/hook/{SECRET}?to=ops"

    @property
    def shares(self) -> list[Decimal]:
        return [body["share"] for _, body in self.got]
