"""A real browser without a window, driven by the DevTools protocol over a pipe: commands in, answers and events out.

https://chromedevtools.github.io/devtools-protocol/
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

BINARY = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None
)
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--mute-audio", "--remote-debugging-pipe"),
    # Only this machine is found, whatever a page names.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_BLANK = "about:blank"
_WRAPPER = """
import fcntl, os, sys
hears, says = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(hears, 3)
os.dup2(says, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A browser with a debugging pipe hears at file descriptor 3 and answers at 4."""


class BrowserGone(Exception):
    """It ended, or did not do what it was told; says what."""


class Browser:
    """One tab. `complaints` and `requests` are those of the page that was opened last."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        tab = self._call("Target.createTarget", url=_BLANK)["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Returns once all of it is loaded."""
        self.complaints, self.requests, self._loaded = [], [], False
        failed = self._call("Page.navigate", url=url).get("errorText")
        if failed:
            raise BrowserGone(f"{url}: {failed}")
        self.wait()

    def wait(self) -> None:
        """Until the page that is on its way is loaded."""
        while not self._loaded:
            self._event(self._read())
        self._loaded = False

    def click(self, selector: str) -> None:
        """What leads to another page; returns once that is loaded."""
        self.complaints, self.requests, self._loaded = [], [], False
        self.value(f"void document.querySelector({json.dumps(selector)}).click()")
        self.wait()

    def value(self, expression: str) -> Any:
        """Of JavaScript that the test says; pages have none."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise BrowserGone(f"{expression}: {found['exceptionDetails']['text']}")
        return found["result"].get("value")

    def fill(self, selector: str, text: str) -> None:
        self.value(f"void (document.querySelector({json.dumps(selector)}).value = {json.dumps(text)})")

    def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """The window's size in CSS pixels, and the user's colours."""
        narrow = width < 600
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=narrow)
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[colours])

    def close(self) -> None:
        self._session = None
        self._call("Browser.close")

    def _call(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._event(answer)
        if "error" in answer:
            raise BrowserGone(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._answers, 65_536)
            if not part:
                raise BrowserGone("the browser ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _event(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.complaints.append(f"{method}: {params}")


@contextmanager
def browser() -> Iterator[Browser]:
    """Its profile is its own, and gone with it."""
    assert BINARY is not None
    hears, commands = os.pipe()
    answers, says = os.pipe()
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        wrapped = (sys.executable, "-c", _WRAPPER, str(hears), str(says))
        argv = [*wrapped, BINARY, *_ARGUMENTS, f"--user-data-dir={profile}", _BLANK]
        child = subprocess.Popen(
            argv, pass_fds=(hears, says), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(hears)
        os.close(says)
        try:
            tab = Browser(commands, answers)
            yield tab
            tab.close()
            child.wait(60)
        finally:
            child.kill()
            child.wait()
            os.close(commands)
            os.close(answers)
