"""About thirty varied prompts through a running gateway, with the official client: `python -m bench.demo`, `make demo`.

Ends with what they cost and with one decision explained. Exit status 1 if any prompt failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import httpx2
import msgspec
import openai
from msgspec import Struct
from openai import OpenAI
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from bench.children import free_port, last_lines, surroundings
from bench.prompts import PROMPTS, Prompt, Said, Wrong
from router.cli.explain import explanation
from router.decide.explain import PlacedExplanation

DEFAULT_URL = "http://127.0.0.1:4100/v1"
_ROOT = Path(__file__).parent.parent
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 20.0
_PROMPT_LIMIT_S = 60.0
_SHOWN = ("target", "requests", "errors", "input_tokens", "output_tokens", "cost_usd")
"""Columns of the spend report that fit a terminal."""
_MOST_CHARS = 400
"""Of an answer or an error; a terminal cuts answers to its width."""


class NoGateway(Exception):
    """None answers and none could be started; says why."""


class Done(Struct, frozen=True):
    """How a prompt went. What the answer did not tell is empty; `cost` is in USD."""

    words: str
    failed: bool
    seconds: float
    target: str
    data_class: str
    decision: str
    cost: str


class Demo:
    """One client of one gateway; remembers the headers of its last answer."""

    def __init__(self, base_url: str, key: str) -> None:
        self._headers = httpx2.Headers()
        self._http = openai.DefaultHttpxClient(event_hooks={"response": [self._remember]})
        self.client = OpenAI(
            base_url=base_url, api_key=key, max_retries=0, timeout=_PROMPT_LIMIT_S, http_client=self._http
        )

    def run(self, prompt: Prompt) -> Done:
        self._headers = httpx2.Headers()
        started, failed = time.monotonic(), False
        try:
            said = prompt.ask(self.client)
        except (openai.OpenAIError, Wrong) as error:
            said, failed = Said(str(error)), True
        except Exception as error:  # a prompt that breaks must not hide how the others go
            said, failed = Said(f"{type(error).__name__}: {error}"), True
        cost = self._told("cost-usd") if said.cost is None else f"{said.cost:f}"
        words, seconds = " ".join(said.words.split()), time.monotonic() - started
        return Done(words, failed, seconds, self._told("model"), self._told("class"), self._told("decision"), cost)

    def get(self, path: str) -> bytes:
        """A document of the gateway. Raises httpx2.HTTPError."""
        headers = {"authorization": f"Bearer {self.client.api_key}"}
        answer = self._http.get(f"{self.client.base_url}{path}", headers=headers)
        return answer.raise_for_status().content

    def close(self) -> None:
        self.client.close()

    def _remember(self, response: httpx2.Response) -> None:
        self._headers = response.headers

    def _told(self, name: str) -> str:
        return str(self._headers.get(f"x-lowpass-{name}", ""))


def play(demo: Demo, console: Console) -> list[Done]:
    """Every prompt, one after the other, each with a line of its own."""
    done = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(PROMPTS))
        for prompt in PROMPTS:
            progress.update(task, description=prompt.name)
            done.append(demo.run(prompt))
            progress.console.print(_line(prompt, done[-1]))
            progress.advance(task)
    return done


def _line(prompt: Prompt, done: Done) -> Table:
    line = Table.grid(padding=(0, 1), expand=True)
    line.add_column(width=1)
    line.add_column(width=23, no_wrap=True)
    line.add_column(ratio=1, no_wrap=not done.failed)
    for width in (10, 8):
        line.add_column(width=width, no_wrap=True)
    line.add_column(width=12, no_wrap=True, justify="right")
    mark = Text("✗", "bold red") if done.failed else Text("✓", "green")
    words = Text(done.words[:_MOST_CHARS], "red" if done.failed else "")
    line.add_row(
        mark, Text(prompt.name), words, Text(done.target), Text(done.data_class), f"${done.cost}" if done.cost else ""
    )
    return line


def spent(demo: Demo, since: datetime) -> Table:
    """What the demo cost, as the gateway's own report tells it."""
    query = f"reports/spend?by=target&since={since:%Y-%m-%dT%H:%M:%SZ}"
    report = json.loads(demo.get(query), parse_float=Decimal)
    totals = [_cell(report["totals"][name]) for name in _SHOWN]
    drawn = Table(title=f"\nSpend by target since {since:%H:%M:%S} UTC", title_justify="left", show_footer=True)
    for name, total in zip(_SHOWN, totals, strict=True):
        heading = name.replace("_usd", " $").replace("_", " ")
        drawn.add_column(heading, total, justify="left" if name == "target" else "right", no_wrap=name != "target")
    for row in report["rows"]:
        drawn.add_row(*(_cell(row[name]) for name in _SHOWN))
    return drawn


def _cell(value: object) -> Text:
    return Text("–" if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value))


@contextmanager
def gateway(base_url: str, console: Console) -> Iterator[str]:
    """The one that answers at `base_url`, or one of our own until the block ends. Yields its base URL."""
    if _answers(base_url.removesuffix("/v1") + "/health/live"):
        console.print(f"Using the gateway at {base_url}")
        yield base_url
        return
    with tempfile.TemporaryDirectory(prefix="lowpass-demo-") as home:
        port = free_port()
        console.print(f"No gateway answers at {base_url}: starting one on port {port}, for this demo only")
        with _started(port, Path(home), console):
            yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def _started(port: int, home: Path, console: Console) -> Iterator[None]:
    log = home / "gateway.log"
    argv = [sys.executable, "-m", "router.cli", "serve", "--port", str(port)]
    with log.open("wb") as output:
        child = subprocess.Popen(
            argv,
            cwd=_ROOT,
            env=surroundings() | {"LOWPASS_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        with console.status("waiting for the model"):
            _wait(child, f"http://127.0.0.1:{port}/health/ready", log)
        yield
    finally:
        _stop(child)


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while not _answers(url):
        if child.poll() is not None or time.monotonic() > deadline:
            raise NoGateway(f"the gateway did not start:\n{last_lines(log)}")
        time.sleep(0.1)


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def show(base_url: str, key: str, console: Console) -> int:
    """The whole demo; returns how many prompts failed."""
    since = datetime.now(UTC)
    with closing(Demo(base_url, key)) as demo:
        done = play(demo, console)
        console.print(spent(demo, since))
        last = next((one for one in reversed(done) if one.decision), None)
        if last is not None:
            explained = msgspec.json.decode(demo.get(f"decisions/{last.decision}"), type=PlacedExplanation)
            console.print(f"\nWhy the last one went to {last.target} (its class is {last.data_class}):")
            console.print(explanation(explained))
    failed = sum(one.failed for one in done)
    console.print(f"\n{len(done) - failed} of {len(done)} prompts answered in {sum(one.seconds for one in done):.0f} s")
    return failed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    parser.add_argument("--base-url", default=DEFAULT_URL, help="of a gateway that runs; else one is started")
    parser.add_argument("--api-key", default=os.environ.get("LOWPASS_API_KEY", "unused"), help="else LOWPASS_API_KEY")
    return parser.parse_args()


def main() -> None:
    options, console = _options(), Console()
    try:
        with gateway(options.base_url.rstrip("/"), console) as base_url:
            failed = show(base_url, options.api_key, console)
    except (NoGateway, httpx2.HTTPError) as problem:
        sys.exit(f"demo: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
