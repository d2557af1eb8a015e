"""The real model on this machine: talks go on, clients leave, a replica dies, and what is too much goes elsewhere."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from router.estimate.learn import TargetStats
from router.estimate.tokens import TEMPLATE_TOKENS
from router.testing.upstream import Upstream
from tests.decide.values import estimate
from tests.decide.values import target as remote
from tests.estimate.test_tokens import NASTY, bound, chat
from tests.gateway.running import CHAT, ROOT, Gateway, ordered, processing, serving, target, until, user

MODEL = "local/smollm2-135m-instruct"
INSTRUCTIONS = "You answer briefly, in plain words, and never apologise. " * 4


def spec(folder: Path, **more: Any) -> str:
    shipped = ROOT / "local_serving" / "engines" / "smollm2.yaml"
    path, rows = folder / "spec.yaml", yaml.safe_load(shipped.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**rows, "threads": 1, "context": 2_048, **more}))
    return str(path)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """One for each test: a replica that broke rests for a while, and its talks are elsewhere meanwhile."""
    engine = spec(tmp_path, name="pair", replicas=2, parallel=2, batch=512, cache_mib=0)
    targets = {"local": {"model": MODEL, "engine": engine}}
    with serving(tmp_path, {"version": 1, "targets": targets, "routes": {"auto": ordered("local")}}) as gateway:
        until(lambda: idle(gateway))
        yield gateway
        gateway.check_books()


def engines(gateway: Gateway) -> list[dict[str, Any]]:
    return list(gateway.get("/health/ready").json["engines"])


def idle(gateway: Gateway) -> bool:
    return all(row["status"] == "ready" and row["load"] and row["load"]["running"] == 0 for row in engines(gateway))


def at_work(url: str) -> bool:
    with urlopen(f"{url.removesuffix('/v1')}/metrics", timeout=60) as page:
        families = text_string_to_metric_families(page.read().decode())
    return any(s.value for f in families for s in f.samples if s.name == "llamacpp:requests_processing")


def talk(number: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": INSTRUCTIONS}, *user(f"What is {number} plus one?")]


def begin(gateway: Gateway) -> tuple[Any, dict[str, Any]]:
    """A long stream, of which the first words have come, and the engine that it comes from."""
    body = {"model": "auto", "messages": talk(1), "stream": True, "max_tokens": 400, "temperature": 1.0}
    stream = gateway.stream(CHAT, {**body, "ignore_eos": True})
    next(piece for piece in stream if b'"content"' in piece)
    (engine,) = until(lambda: [row for row in engines(gateway) if at_work(row["url"])])
    return stream, engine


def test_a_talk_goes_on_where_its_beginning_is_known(gateway: Gateway) -> None:
    talks, cached = [talk(number) for number in range(3)], []
    for turn in range(2):
        for messages in talks:
            until(lambda: idle(gateway))
            reply = gateway.post(CHAT, {"model": "auto", "messages": messages, "max_tokens": 4})
            assert reply.status == 200, reply.body
            usage = reply.json["usage"]
            if turn:
                cached.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
            messages += [reply.json["choices"][0]["message"], *user("Sure?")]
    assert min(cached) > 0.5


def test_the_engine_s_own_count_is_what_it_charges_and_within_the_bound_of_any_script(gateway: Gateway) -> None:
    """Without the bound's allowance for a chat template, which must not help. Prose is not held for many times over."""

    def count(text: str, **more: Any) -> int:
        body = {"model": "local", "messages": user(text), "max_tokens": 1, **more}
        counted = int(gateway.post("/v1/messages/count_tokens", body).json["input_tokens"])
        if more:
            usage = gateway.post("/v1/messages", body).json["usage"]
            assert usage["input_tokens"] + usage["cache_read_input_tokens"] == counted
        return counted

    tool = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    assert count("Hi") < count(NASTY["mixed"], system="Be brief.") < count("a b " * 300, tools=[tool])
    template = count("Hi") - 1
    counted = {name: (count(text) - template, bound(chat(text)) - TEMPLATE_TOKENS) for name, text in NASTY.items()}
    assert {name: pair for name, pair in counted.items() if pair[0] > pair[1]} == {}
    figures, tokens = estimate(remote(context=10**6), chat(NASTY["prose"]), TargetStats()), counted["prose"][0]
    assert tokens * 0.7 < figures.input_tokens < tokens * 1.3
    assert figures.input_bound < tokens * 4


def test_a_client_that_leaves_takes_its_work_along(gateway: Gateway) -> None:
    stream, engine = begin(gateway)
    stream.close()
    until(lambda: not at_work(engine["url"]))


def test_the_death_of_a_replica_loses_no_request_that_was_not_begun(gateway: Gateway) -> None:
    stream, engine = begin(gateway)
    os.kill(engine["pid"], signal.SIGKILL)
    rest = b"".join(stream)
    assert (b'"error"' in rest, b"[DONE]" in rest) == (True, False)
    bodies = [{"model": "auto", "messages": talk(number), "max_tokens": 4} for number in range(6)]
    with ThreadPoolExecutor(4) as pool:
        assert {reply.status for reply in pool.map(lambda body: gateway.post(CHAT, body), bodies)} == {200}
    assert gateway.get("/health/ready").json["targets"] == {}


def test_an_engine_with_one_slot_spills_nothing_is_lost_and_the_rows_say_where_each_went(
    upstream: Upstream, tmp_path: Path
) -> None:
    """In two processes, of which each knows of the other's requests only what the engine says."""
    local = {"model": MODEL, "engine": spec(tmp_path, name="single", parallel=1), "max_wait_ms": 200}
    targets = {"local": local, "cloud": target(upstream.url, "normal")}
    routes = {"auto": ordered("local", "cloud"), "here": ordered("local")}
    rules = {"version": 1, "targets": targets, "routes": routes}
    with processing(tmp_path, rules, {"LOWPASS_WORKERS": "2"}) as gateway:
        with ThreadPoolExecutor(24) as pool:
            replies = list(pool.map(lambda _: gateway.chat("auto", max_tokens=24), range(24)))
        rows = [gateway.settled(reply.id) for reply in replies]
        assert {reply.status for reply in replies} == {200}
        assert {(row["status"], row["state"]) for row in rows} == {(200, "settled")}
        served = Counter(reply.headers["x-lowpass-model"] for reply in replies)
        assert set(served) == {"local", "cloud"}
        assert served == Counter(row["attempts"][-1]["target"] for row in rows)
        assert {r.headers["x-lowpass-model"] for r in replies if "x-lowpass-spilled" in r.headers} == {"cloud"}
        # Alone it waits, however long that is.
        with ThreadPoolExecutor(4) as pool:
            queued = list(pool.map(lambda _: gateway.chat("here", max_tokens=8), range(4)))
        assert [(reply.status, reply.headers["x-lowpass-model"]) for reply in queued] == [(200, "local")] * 4
        gateway.check_books()
