"""One gateway for the whole suite: a target for every wire, behaviour and way of asking."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from router.testing.upstream import TEXT, Upstream
from router.testing.upstream.behaviours import Break
from tests.conformance.expected import ASKED_AGAIN, CASES, EARLY, LACKS, RATES, WIRES, Case
from tests.gateway.canned import PAUSE, canned
from tests.gateway.running import Gateway, ordered, serving
from tests.upstream.probe import MESSAGES, post

PROVIDERS = {"llamacpp": "llama_cpp"}
"""Whose name in the catalog is not the wire's."""
SECRET = "sk-upstream-secret"
HASTE = {Break.SILENCE: {"first_ms": 250}, Break.HANG: {"between_ms": 250}}
"""Timeouts of the targets that hang."""
_CAPABILITIES = ["chat", "tools", "json_schema", "vision", "completions", "embeddings", "logprobs", "n"]
_NEEDED = {"many": "n", "logprobs": "logprobs"}


@pytest.fixture(scope="session")
def conforming(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Gateway]:
    spoilt = {_name(case): (200, _in_two_breaths(upstream_server, case)) for case in CASES if _spoils(case)}
    ends = {f"{wire}-{EARLY}": (200, spoilt[f"{wire}-error-in-stream"][1].partition(PAUSE)[0]) for wire in WIRES}
    with canned(spoilt | ends) as late:
        places = {case: f"{late.url}/{_name(case)}" if _spoils(case) else upstream_server.url for case in CASES}
        targets = {case.target: _target(places[case], case) for case in CASES}
        for wire in WIRES:
            targets[f"{wire}/{EARLY}"] = _target(f"{late.url}/{wire}-{EARLY}", Case(wire, "normal", streamed=True))
        policy = {"version": 1, "targets": targets, "routes": {"auto": ordered(CASES[0].target)}}
        with serving(tmp_path_factory.mktemp("conformance"), policy) as gateway:
            yield gateway
            gateway.check_books()
            assert SECRET not in gateway.log.read_text()


@pytest.fixture
def gateway(conforming: Gateway, upstream: Upstream) -> Gateway:
    return conforming


@pytest.fixture(scope="session")
def session_client(conforming: Gateway) -> Iterator[openai.OpenAI]:
    with conforming.client() as client:
        yield client


@pytest.fixture
def client(session_client: openai.OpenAI, upstream: Upstream) -> openai.OpenAI:
    return session_client


def _spoils(case: Case) -> bool:
    """A stream that goes bad: it must be read apart from what came before, or it is a failure without an answer."""
    return case.streamed and case.row.breaks in (Break.ERROR, Break.GARBAGE)


def _name(case: Case) -> str:
    return f"{case.wire}-{case.behaviour}"


def _in_two_breaths(upstream: Upstream, case: Case) -> bytes:
    """What the scripted upstream says, with a pause before it goes bad."""
    asked: dict[str, Any] = {"model": case.model, "messages": MESSAGES, "stream": True, "max_tokens": 100}
    if case.wire == "gemini":
        asked = {"contents": [{"parts": [{"text": "Hello"}]}]}
    _, _, data = post(upstream, case.path, asked)
    newline = b"\r\n" if case.wire == "gemini" else b"\n"
    end = data.index(newline * 2, data.index(TEXT[1].encode())) + 2 * len(newline)
    return data[:end] + PAUSE + data[end:]


def _target(url: str, case: Case) -> dict[str, Any]:
    lacking = {_NEEDED[behaviour] for wire, behaviour in LACKS if wire == case.wire}
    model = {
        "name": case.model,
        "provider": PROVIDERS.get(case.wire, case.wire),
        "context": 2_000_000,
        "max_output": 1_300_000,
        "capabilities": [name for name in _CAPABILITIES if name not in lacking],
        "price": RATES,
    }
    return {
        "model": model,
        "base_url": f"{url}{case.prefix}",
        "api_key": SECRET,
        "retries": ASKED_AGAIN.get(case.behaviour, 0),
        "timeouts": HASTE.get(case.row.breaks, {}) if case.row.breaks else {},
    }
