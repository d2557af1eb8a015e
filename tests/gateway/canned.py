"""An upstream that answers exactly what a test puts into its mouth, for answers that no real provider should give."""

from collections.abc import Mapping

from router.testing.upstream import Page, Recorded, Upstream

Answers = dict[str, tuple[int, bytes]]
PAUSE = b"<pause>"
"""In a body: what comes before it is read apart from what follows."""


class Canned(Upstream):
    """`/<name>/v1/…` answers with the status and body of `answers[name]`, and `asked` are the names."""

    def __init__(self, answers: Answers, headers: Mapping[str, str]) -> None:
        super().__init__()
        self.answers, self.headers = answers, headers

    @property
    def asked(self) -> list[str]:
        return [request.path.split("/")[1] for request in self.requests]

    def page(self, request: Recorded) -> Page:
        status, body = self.answers[request.path.split("/")[1]]
        kind = "text/event-stream" if body.startswith(b"data:") else "application/json"
        return Page(tuple(body.split(PAUSE)), status, {"content-type": kind, **self.headers})


def canned(answers: Answers, headers: Mapping[str, str] | None = None) -> Canned:
    return Canned(answers, headers or {})
