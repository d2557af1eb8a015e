"""One gateway for all clients: each behaviour behind a chat-only provider and behind one with a Responses endpoint."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import openai
import pytest
from pydantic import BaseModel

from router.testing.upstream import BEHAVIOURS, TEXT, Upstream
from tests.gateway.conftest import gateway
from tests.gateway.running import Gateway, ordered, serving, target

__all__ = ["gateway"]
T = TypeVar("T")
HELLO = "".join(TEXT)
NORMAL_NANO = 20 * 1_000 + 10 * 2_000
KINDS = {"chat": "deepseek", "native": "openai"}
"""Of targets, and whose each is: one speaks chat alone, the other has a Responses endpoint too."""
ALL = ["chat", "tools", "json_schema", "vision", "completions", "embeddings", "logprobs", "n"]


class Weather(BaseModel):
    city: str
    days: int


def policy(url: str) -> dict[str, Any]:
    targets = {
        f"{kind}/{name}": target(url, name, capabilities=ALL, flavour=provider, provider=provider, abandoned="cancel")
        for kind, provider in KINDS.items()
        for name in BEHAVIOURS
    }
    targets["text-only"] = target(url, "normal", capabilities=["chat"])
    targets["parts"] = target(url, "reasoning", flavour="mistral", provider="mistral")
    return {"version": 1, "targets": targets, "routes": {"auto": ordered("chat/normal")}}


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream, request: pytest.FixtureRequest
) -> Iterator[Gateway]:
    """Under the `policy` of the module, if it has one."""
    made = getattr(request.module, "policy", policy)(upstream_server.url)
    with serving(tmp_path_factory.mktemp("clients"), made) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with gateway.client() as client:
        yield client


@pytest.fixture
def run(gateway: Gateway) -> Callable[[Callable[[openai.AsyncOpenAI], Awaitable[T]]], T]:
    """Runs what is awaited with the asynchronous client."""

    async def main(work: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0) as client:
            return await work(client)

    return lambda work: asyncio.run(main(work))
