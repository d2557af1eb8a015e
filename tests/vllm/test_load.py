"""Clients that leave, more requests than fit, processes that are killed."""

import os
import signal
import threading

import openai
import pytest

from tests.conformance.client import told
from tests.gateway.running import until
from tests.tables import each_row
from tests.vllm.running import QUEUE, House, ask
from tests.vllm.test_answers import asked

LONG = {"max_tokens": 400, "temperature": 1, "extra_body": {"ignore_eos": True}}


def test_a_client_that_leaves_takes_its_work_along(house: House, client: openai.OpenAI) -> None:
    with client.chat.completions.create(**asked("plain", True, **LONG)) as stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        assert house.gauge("plain", "num_requests_running") == 1
    house.idle("plain")
    row = house.last("plain")
    assert row["attempts"][0]["outcome"] == "client_gone"
    assert 0 < row["output_tokens"] < 400


def test_the_gateway_tells_how_busy_its_engines_are(house: House, client: openai.OpenAI) -> None:
    with client.chat.completions.create(**asked("plain", True, **LONG)) as stream:
        next(iter(stream))
        until(lambda: _told(house, "lowpass_engine_running") == 1, 60)
    until(lambda: _told(house, "lowpass_engine_running") == 0, 60)
    assert _told(house, "lowpass_engine_ready") == 1


def test_the_engine_counts_what_the_ledger_has(house: House, client: openai.OpenAI) -> None:
    house.idle("plain")
    gauges = ("prompt_tokens_total", "generation_tokens_total")
    before = [house.gauge("plain", name) for name in gauges]
    usage = told(client, asked("plain", True)).usages[0]
    grown = [house.gauge("plain", name) - count for name, count in zip(gauges, before, strict=True)]
    assert grown == [usage["prompt_tokens"], usage["completion_tokens"]]


def test_a_prompt_seen_before_is_told_to_be_cached(house: House, client: openai.OpenAI) -> None:
    long = [{"role": "user", "content": "Sum this up: " + "the cat sat on the mat, " * 40}]
    first, again = (told(client, asked("plain", True, messages=long, max_tokens=2)) for _ in range(2))
    assert first.usages[0]["prompt_tokens"] == again.usages[0]["prompt_tokens"]
    cached = again.usages[0]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 128
    assert house.gateway.settled(again.request_id)["attempts"][0]["cache_read"] == cached


def test_more_than_fit_are_served_elsewhere_or_told_to_wait(house: House, client: openai.OpenAI) -> None:
    """They fill the engine past the gateway, so that it can't know before."""
    body = {"model": "moe", "prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True}
    url = f"{house.url('thinker')}/v1/completions"
    crowd = [threading.Thread(target=ask, args=(url, body)) for _ in range(QUEUE)]
    for one in crowd:
        one.start()
    until(lambda: ask(f"{house.url('thinker')}/load")[1] == b'{"server_load":%d}' % QUEUE, 60)
    seen = told(client, asked("auto", False))
    with pytest.raises(openai.InternalServerError) as failed:
        told(client, asked("thinker", True))
    for one in crowd:
        one.join()
    assert seen.headers["x-lowpass-model"] == "plain"
    assert (failed.value.status_code, failed.value.code) == (503, "saturated")
    assert house.last("thinker")["attempts"][0]["upstream_status"] == 503
    assert told(client, asked("thinker", False)).choices[0].text


@pytest.mark.timeout(600)
@each_row("title", ["VLLM::Worker", "vllm.entrypoints"])
def test_a_process_that_is_killed_is_told_and_replaced(house: House, client: openai.OpenAI, title: str) -> None:
    (victim,) = house.children("plain", title)
    with pytest.raises(openai.APIError):
        _read(client, victim)
    broken = house.last("plain")
    assert broken["attempts"][0]["outcome"] in ("server_error", "cut")
    assert told(client, asked("auto", False)).choices[0].text
    house.ready("plain")
    until(lambda: _answers(client), 60)
    assert house.engine("plain")["states"][0]["restarts"] > 0


def _told(house: House, metric: str) -> float:
    """Of the engine "plain", on the gateway's page."""
    lines = house.gateway.get("/metrics").body.decode().splitlines()
    found = [line for line in lines if line.startswith(metric) and 'engine="plain"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found)


def _read(client: openai.OpenAI, victim: int) -> None:
    """A long answer, and kills the process in the middle of it."""
    with client.chat.completions.create(**asked("plain", True, **LONG)) as stream:
        texts = (chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
        next(texts)
        os.kill(victim, signal.SIGKILL)
        for _ in texts:
            pass


def _answers(client: openai.OpenAI) -> bool:
    """Its circuit may be open for a while yet."""
    try:
        return bool(told(client, asked("plain", False)).choices[0].text)
    except openai.InternalServerError:
        return False
