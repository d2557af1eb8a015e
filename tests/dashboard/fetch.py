"""What a browser or a script gets from a URL."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import urlencode


class Answer(NamedTuple):
    status: int
    headers: Message
    body: str


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Redirects are answers too."""


_OPENER = urllib.request.build_opener(_Stay)
OURS = {"sec-fetch-site": "same-origin"}
"""What a browser sends along with a form of the page itself."""


def get(url: str, headers: Mapping[str, str] = {}, data: bytes | None = None) -> Answer:
    sent = {"accept": "text/html", **headers}
    try:
        with _OPENER.open(urllib.request.Request(url, data, sent), timeout=60) as answer:
            return Answer(answer.status, answer.headers, answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read().decode())


def post(url: str, fields: Mapping[str, str], headers: Mapping[str, str] = OURS) -> Answer:
    return get(url, headers, urlencode(fields).encode())


class Page(HTMLParser):
    """Tags with their attributes, visible text, and the table rows of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self._cell = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._cell = tag in ("td", "th") or (self._cell and tag in ("a", "br", "span"))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] != "style":
            self.text += f"{data} "
        if self._cell:
            self.rows[-1][-1] += data.strip()

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]
