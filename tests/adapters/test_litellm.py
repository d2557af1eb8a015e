"""LiteLLM as a wire: what reaches the provider, what comes back, and what never happens.

Runs whole in LiteLLM's own environment (`make litellm-test`); elsewhere the tests that need LiteLLM are skipped.
"""

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from adapters.litellm import REMEDY, LitellmAdapter, LitellmTransport
from router.errors import ClientError, UpstreamFailure
from router.testing.upstream import HUGE, REASONING, REFUSAL, TEXT, Recorded, Upstream, reported
from router.types import target as targets
from router.types.attempt import Call, ErrorKind, Failure, StreamDecoder, TargetReply, UpstreamResponse, Usage
from router.types.request import Endpoint
from router.types.target import Model, Provider, Target, Timeouts, Wire
from tests.tables import each_row

pytestmark = [  # of LiteLLM's own making
    pytest.mark.filterwarnings("ignore:Item .* on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_.*' attribute on the instance:DeprecationWarning"),
]
INSTALLED = find_spec("litellm") is not None
BASES = {"openai": "/v1", "anthropic": "", "gemini": "/v1beta", "mistral": "/mistral/v1"}
KEY = "sk-very-secret"
MESSAGES = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}}}
ADAPTER = LitellmAdapter()
PATIENT = Timeouts(first=110_000, between=110_000, total=110_000)


def target(upstream: Upstream, model: str, timeouts: Timeouts = PATIENT, **more: Any) -> Target:
    base_url = upstream.url + BASES[model.partition("/")[0]]
    quirks = targets.Quirks(thinking_field=targets.ThinkingField.REASONING_EFFORT)
    provider = Provider(id="any", wire=Wire.LITELLM, base_url=base_url, quirks=quirks)
    thinking = targets.Thinking(contract=targets.Contract.LEVEL, levels=("low", "high"), tokens=(1024, 4096))
    card = Model(id="any", name=model, context=8192, max_output=4096, capabilities=frozenset(), thinking=thinking)
    given = {"id": "any", "model": card, "provider": provider, "base_url": base_url, "timeouts": timeouts, **more}
    return Target(api_key=targets.Secret(KEY), **given)


def call(to: Target, *, stream: bool = False, endpoint: Endpoint = Endpoint.CHAT, **body: Any) -> Call:
    raw = {name: Raw(msgspec.json.encode(value)) for name, value in (body or {"messages": MESSAGES}).items()}
    return Call(target=to, endpoint=endpoint, body=raw, model="auto", stream=stream)


async def opened(asked: Call, transport: LitellmTransport) -> UpstreamResponse:
    """By the steps that dispatch takes."""
    response = await transport.send(asked.target.base_url, ADAPTER.encode(asked), asked.target.timeouts)
    if response.status != 200:
        raise UpstreamFailure(ADAPTER.failure(response.status, response.headers, await response.read()))
    return response


async def answered(asked: Call, transport: LitellmTransport) -> TargetReply:
    response = await opened(asked, transport)
    body = await response.read()
    response.close()
    return ADAPTER.decode(asked, body)


async def streamed(asked: Call, transport: LitellmTransport) -> tuple[StreamDecoder, bytes]:
    """A streamed answer: the decoder at its end, and all events."""
    response = await opened(asked, transport)
    decoder, events = ADAPTER.stream(asked), b""
    try:
        async for data in response.chunks():
            events += decoder.feed(data)
    finally:
        response.close()
    return decoder, events + decoder.final(b"{}")


def whole(asked: Call) -> TargetReply:
    return asyncio.run(answered(asked, LitellmTransport(2)))


def stream(asked: Call) -> tuple[StreamDecoder, bytes]:
    return asyncio.run(streamed(asked, LitellmTransport(2)))


def both(to: Target, **body: Any) -> tuple[TargetReply, StreamDecoder, bytes]:
    """The whole answer, and the same streamed."""
    return whole(call(to, **body)), *stream(call(to, stream=True, **body))


def failure(asked: Call) -> Failure:
    with pytest.raises(UpstreamFailure) as caught:
        stream(asked) if asked.stream else whole(asked)
    return caught.value.failure


def message(reply: TargetReply) -> dict[str, Any]:
    (choice,) = msgspec.json.decode(reply.body["choices"], type=list[dict[str, Any]])
    return msgspec.convert(choice["message"], dict[str, Any])


def deltas(events: bytes, field: str) -> str:
    """One field of all the deltas of a stream, joined."""
    chunks = [msgspec.json.decode(line[6:]) for line in events.splitlines() if line.startswith(b"data: {")]
    return "".join(choice["delta"].get(field) or "" for chunk in chunks for choice in chunk["choices"])


def counts(usage: Usage | None) -> tuple[int, int, int, int]:
    """Input uncached, cache read, cache written, all output."""
    assert usage is not None
    return usage.input_uncached, usage.cache_read, usage.cache_write + usage.cache_write_1h, usage.totals.output


def expected(model: str) -> tuple[int, int, int, int]:
    wire, _, behaviour = model.partition("/")
    tokens = reported(wire, behaviour)
    assert tokens is not None
    return tokens.uncached, tokens.cache_read, tokens.cache_write + tokens.cache_write_1h, tokens.output


@pytest.fixture(scope="module")
def litellm() -> None:
    if not INSTALLED:
        pytest.skip("LiteLLM has an environment of its own: make litellm-test")


@pytest.fixture
def provider(litellm: None, upstream: Upstream) -> Upstream:
    """The scripted upstream, asked by LiteLLM."""
    return upstream


def test_importing_the_gateway_loads_no_litellm() -> None:
    code = "import adapters.litellm, router.cli, sys; assert 'litellm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_request_is_openais_with_litellms_model_string(upstream: Upstream) -> None:
    to = target(upstream, "gemini/normal", headers={"X-Team": "a"})
    request = ADAPTER.encode(call(to, messages=MESSAGES, metadata={"tags": ["x"]}))
    assert request.path == "/chat/completions"
    assert msgspec.json.decode(request.body) == {"model": "gemini/normal", "messages": MESSAGES}
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "x-team": "a"}
    assert dict(request.headers) == headers


ELSEWHERE = ["api_base", "base_url", "api_key", "callbacks", "fallbacks", "mock_response"]
ELSEWHERE += ["extra_headers", "extra_body"]
ADDRESSES: list[dict[str, object]] = [
    {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data"}},
    {"type": "image_url", "image_url": "/etc/passwd"},
    {"type": "file", "file": {"file_id": "https://intranet.example/salaries.pdf"}},
]


@each_row(
    "param, value, words",
    [
        *((name, "https://attacker.example", None) for name in ELSEWHERE),
        *(("messages", [{"role": "user", "content": [part]}], "data:") for part in ADDRESSES),
        ("tools", [{"type": "mcp", "server_url": "litellm_proxy"}], None),
    ],
)
def test_a_client_cannot_send_its_request_elsewhere_nor_make_the_gateway_fetch_an_address(
    upstream: Upstream, param: str, value: object, words: str | None
) -> None:
    body: dict[str, Any] = {"messages": MESSAGES, param: value}
    asked = call(target(upstream, "anthropic/normal"), **body)
    with pytest.raises(ClientError, match=words) as caught:
        ADAPTER.encode(asked)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_content_as_data_and_text_about_addresses_pass(upstream: Upstream) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    turn = {"role": "user", "content": [{"type": "text", "text": "http://example.org"}, image]}
    assert ADAPTER.encode(call(target(upstream, "openai/normal"), messages=[turn]))


@pytest.mark.skipif(INSTALLED, reason="LiteLLM is here")
def test_without_litellm_the_failure_names_the_remedy(upstream: Upstream) -> None:
    failed = failure(call(target(upstream, "openai/normal")))
    assert failed.kind is ErrorKind.MODEL_MISSING
    assert REMEDY in failed.message
    assert upstream.requests == []


@each_row("model", [f"{wire}/{name}" for wire in BASES for name in ("normal", "cached", "reasoning", "split-frames")])
def test_whole_and_streamed_answers_and_counts_agree(provider: Upstream, model: str) -> None:
    reply, decoder, events = both(target(provider, model))
    assert message(reply)["content"] == deltas(events, "content") == "".join(TEXT)
    assert counts(reply.usage) == counts(decoder.usage) == expected(model)
    assert (reply.finish_reason, decoder.finish_reason, decoder.finished) == ("stop", "stop", True)
    assert msgspec.json.decode(reply.body["model"]) == "auto"


@each_row("wire", ["anthropic", "gemini", "mistral"])
def test_thinking_is_shown_and_counted(provider: Upstream, wire: str) -> None:
    reply, decoder, events = both(target(provider, f"{wire}/reasoning"))
    assert message(reply)["reasoning_content"] == deltas(events, "reasoning_content") == "".join(REASONING)
    tokens = reported(wire, "reasoning")
    assert tokens is not None
    assert reply.usage is not None
    assert decoder.usage is not None
    assert reply.usage.output_reasoning == decoder.usage.output_reasoning == tokens.reasoning


def test_usage_that_the_provider_did_not_report_is_unknown(provider: Upstream) -> None:
    """LiteLLM would say zero, or what its own tokeniser counts."""
    assert whole(call(target(provider, "openai/missing-usage"))).usage is None
    for wire in ("openai", "anthropic", "gemini"):
        decoder, _ = stream(call(target(provider, f"{wire}/missing-usage"), stream=True))
        assert decoder.usage is None
        assert decoder.has_answer


@each_row("wire", ["openai", "anthropic", "gemini"])
def test_tool_calls_arrive_whole_and_streamed(provider: Upstream, wire: str) -> None:
    reply, decoder, events = both(target(provider, f"{wire}/parallel-tools"), messages=MESSAGES, tools=[TOOL, TOOL])
    calls = message(reply)["tool_calls"]
    assert [made["function"]["name"] for made in calls] == ["weather", "weather"]
    assert [msgspec.json.decode(made["function"]["arguments"]) for made in calls] == [{"city": "Köln"}] * 2
    assert (reply.finish_reason, decoder.finish_reason) == ("tool_calls", "tool_calls")
    assert events.count(b'"name":"weather"') == 2


def test_refusals_completions_and_embeddings(provider: Upstream) -> None:
    refused = whole(call(target(provider, "openai/refusal")))
    assert (message(refused)["refusal"], refused.has_answer) == ("".join(REFUSAL), True)
    to = target(provider, "openai/normal")
    reply = whole(call(to, endpoint=Endpoint.COMPLETIONS, prompt="Hello"))
    assert msgspec.json.decode(reply.body["choices"])[0]["text"] == "".join(TEXT)
    assert counts(reply.usage) == (20, 0, 0, 10)
    decoder, events = stream(call(to, endpoint=Endpoint.COMPLETIONS, stream=True, prompt="Hello"))
    assert all(piece.encode() in events for piece in TEXT)
    assert (decoder.finished, decoder.usage) == (True, None), "LiteLLM hides whether this count is its own estimate"
    forms: list[dict[str, Any]] = [{}, {"encoding_format": "base64"}]
    for more in forms:
        vectors = whole(call(to, endpoint=Endpoint.EMBEDDINGS, input=["a", "b"], **more))
        assert len(msgspec.json.decode(vectors.body["data"])) == 2
        assert counts(vectors.usage) == (8, 0, 0, 0)


def test_key_effort_and_headers_reach_the_provider_and_nothing_else(provider: Upstream) -> None:
    asked = call(target(provider, "openai/normal", headers={"X-Team": "a"}), messages=MESSAGES, seed=7)
    whole(msgspec.structs.replace(asked, effort="low", request_id="r1"))
    sent = provider.last
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["x-team"] == "a"
    assert "x-request-id" not in sent.headers
    assert sent.json == {"model": "normal", "messages": MESSAGES, "seed": 7, "reasoning_effort": "low"}


@each_row(
    "model, kind",
    [
        *((f"{wire}/rate-limited", ErrorKind.RATE_LIMITED) for wire in BASES),
        *((f"{wire}/error-500", ErrorKind.SERVER_ERROR) for wire in BASES),
        *((f"{wire}/overloaded", ErrorKind.OVERLOADED) for wire in BASES),
        *((f"{wire}/auth", ErrorKind.AUTH) for wire in BASES),
        *((f"{wire}/context-length", ErrorKind.CONTEXT_LENGTH) for wire in BASES),
        *((f"{wire}/quota", ErrorKind.QUOTA) for wire in ("openai", "anthropic")),
        *((f"{wire}/cut", ErrorKind.CUT) for wire in ("openai", "anthropic")),
        *((f"{wire}/missing-usage", ErrorKind.BAD_RESPONSE) for wire in ("anthropic", "gemini")),
        ("openai/nobody", ErrorKind.MODEL_MISSING),
        ("openai/content-filter", ErrorKind.CONTENT_FILTER),
    ],
)
def test_failures_mean_what_the_provider_said(provider: Upstream, model: str, kind: ErrorKind) -> None:
    failed = failure(call(target(provider, model)))
    assert (failed.kind, "Traceback" in failed.message) == (kind, False)
    assert len(provider.requests) == 1, "LiteLLM retried by itself"
    if model in ("openai/rate-limited", "anthropic/rate-limited"):
        assert failed.retry_after_s == 1


@each_row("wire", ["openai", "anthropic", "gemini"])
def test_a_stream_that_fails_before_its_first_event_has_a_status(provider: Upstream, wire: str) -> None:
    failed = failure(call(target(provider, f"{wire}/rate-limited"), stream=True))
    assert (failed.kind, failed.status, len(provider.requests)) == (ErrorKind.RATE_LIMITED, 429, 1)


@pytest.fixture(scope="module")
def warm(litellm: None, upstream_server: Upstream) -> None:
    """LiteLLM imports each provider's code at its first use: too long for short time limits."""
    for wire in BASES:
        stream(call(target(upstream_server, f"{wire}/normal"), stream=True))


@pytest.mark.usefixtures("warm")
@each_row(
    "model, kind",
    [
        *((f"{wire}/cut", ErrorKind.CUT) for wire in ("openai", "anthropic", "gemini")),
        *((f"{wire}/hang-after-first", ErrorKind.TIMEOUT) for wire in ("openai", "anthropic", "gemini")),
        *((f"{wire}/error-in-stream", ErrorKind.SERVER_ERROR) for wire in ("openai", "anthropic")),
        ("gemini/error-in-stream", ErrorKind.OVERLOADED),
        ("openai/bad-sse-json", ErrorKind.BAD_RESPONSE),
    ],
)
def test_a_stream_that_breaks_never_ends_well(provider: Upstream, model: str, kind: ErrorKind) -> None:
    """A call's thread ends only with the longer of its limits, so a stream that hangs has a short one."""
    limits = Timeouts(first=20_000, between=300, total=120_000) if kind is ErrorKind.TIMEOUT else PATIENT
    assert failure(call(target(provider, model, limits), stream=True)).kind is kind


@each_row("wire, field", [("anthropic", "n"), ("gemini", "logit_bias"), ("mistral", "logit_bias")])
def test_nothing_is_dropped_silently(provider: Upstream, wire: str, field: str) -> None:
    body: dict[str, Any] = {"messages": MESSAGES, field: 2 if field == "n" else {"1": 2}}
    failed = failure(call(target(provider, f"{wire}/normal"), **body))
    assert (failed.kind, failed.param, failed.status) == (ErrorKind.BAD_REQUEST, field, 400)
    assert "drop_params" not in failed.message
    assert provider.requests == []


@pytest.mark.usefixtures("warm")
def test_a_provider_out_of_reach_and_one_that_hangs(provider: Upstream) -> None:
    nowhere = msgspec.structs.replace(target(provider, "openai/normal"), base_url="http://127.0.0.1:9/v1")
    assert failure(call(nowhere)).kind is ErrorKind.CONNECT
    quick = Timeouts(first=300, between=300, total=120_000)
    assert failure(call(target(provider, "anthropic/hang", quick))).kind is ErrorKind.TIMEOUT


@each_row("wire", ["openai", "anthropic", "gemini"])
def test_closing_a_stream_cancels_the_provider(provider: Upstream, wire: str) -> None:
    assert asyncio.run(_close_early(provider, wire)).wait().client_gone


async def _close_early(upstream: Upstream, wire: str) -> Recorded:
    upstream.slow_s = 0.2
    asked = call(target(upstream, f"{wire}/slow-chunks"), stream=True)
    response = await LitellmTransport(1).send(asked.target.base_url, ADAPTER.encode(asked), asked.target.timeouts)
    await anext(aiter(response.chunks()))
    response.close()
    return upstream.last


def test_a_huge_answer_arrives_whole(provider: Upstream) -> None:
    decoder, events = stream(call(target(provider, "openai/huge"), stream=True))
    assert deltas(events, "content") == "".join(HUGE)
    assert decoder.finished


def test_a_stream_that_has_begun_does_not_wait_for_calls_that_have_not(provider: Upstream) -> None:
    async def scene() -> bytes:
        transport = LitellmTransport(1)
        begun = await opened(call(target(provider, "openai/normal"), stream=True), transport)
        hangs = call(target(provider, "openai/hang", Timeouts(first=5_000, between=5_000, total=5_000)))
        hung, data = asyncio.ensure_future(opened(hangs, transport)), b"".join([part async for part in begun.chunks()])
        return data if hung.cancel() else b"it did wait"

    assert asyncio.run(scene()).endswith(b"[DONE]\n\n")


def test_calls_wait_for_a_free_thread(provider: Upstream) -> None:
    async def both() -> tuple[TargetReply, TargetReply]:
        transport = LitellmTransport(1)
        asked = call(target(provider, "openai/slow-first"))
        return await asyncio.gather(answered(asked, transport), answered(asked, transport))

    assert len(asyncio.run(both())) == 2


def test_nothing_of_a_request_is_printed_or_logged(provider: Upstream, capfd: pytest.CaptureFixture[str]) -> None:
    secret = [{"role": "user", "content": "the-secret-prompt"}]
    whole(call(target(provider, "openai/normal"), messages=secret))
    failure(call(target(provider, "openai/auth"), messages=secret))
    printed = "".join(capfd.readouterr())
    assert "the-secret-prompt" not in printed
    assert KEY not in printed
    assert "litellm" not in printed.lower()
