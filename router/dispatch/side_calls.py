"""Calls beside the answer: second opinions on sensitivity classes, verifiers, webhooks, and prompt token counts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from router.classify.detector import DoubtfulValue
from router.classify.language import languages
from router.classify.second_opinion import FormWords, Opinion, OpinionQuestion, ask_body, denied, most_tokens, verdicts
from router.decide.eligibility import ClassGuard, Gate, must_redact
from router.dispatch.dispatch import Dispatcher
from router.dispatch.egress import EgressDenied, EgressFilter, OutboundRequest
from router.dispatch.hold import ReplicaLease
from router.errors import ClientError, UpstreamFailure
from router.estimate.tokens import COUNTING, count_prompt, encoding, media_tokens
from router.outcomes.checks import HttpVerifier, Verifier
from router.outcomes.verify import (
    CheckResult,
    ClassForbids,
    Crashed,
    InvalidReply,
    VerifierPool,
    VerifierPorts,
    child_works,
    verify_all,
)
from router.types.attempt import Call, ErrorKind, UpstreamRequest, VerifierRequest, Verify
from router.types.attempt import Verdict as OutcomeVerdict
from router.types.decision import PromptCount
from router.types.request import UNKNOWN, Endpoint
from router.types.target import Target, Timeouts

# Second opinions of a local model: through the egress filter, with a guard that denies remote targets.

_log = logging.getLogger(__name__)


def away(target: Target, _: frozenset[str]) -> str:
    """Returns why a second opinion may not be sent to `target`, whatever the policy says; empty if it may."""
    return "" if target.provider.local else "a second opinion never leaves this machine"


class SideCall(Struct, frozen=True):
    """A question to a local model about doubtful findings. `classes`: the request's, including the doubtful ones."""

    target: Target
    guard: ClassGuard
    classes: frozenset[str]
    questions: Sequence[OpinionQuestion]
    called: FormWords
    timeout_ms: int
    request_id: str

    def call(self) -> Call:
        return Call(
            target=self.target,
            endpoint=Endpoint.CHAT,
            body=ask_body(self.questions, self.called),
            model=self.target.id,
            request_id=self.request_id,
            max_output=most_tokens(self.questions),
            effort="none",
            private=self.guard.demands(self.classes).private,
        )


class SecondOpinions:
    """Asks for second opinions. Errors are only logged, and then nothing is denied. `count` is called per opinion."""

    def __init__(self, dispatcher: Dispatcher, count: Callable[[Opinion], object]) -> None:
        self._to, self._count = dispatcher, count

    async def denied(self, inquiry: SideCall) -> frozenset[DoubtfulValue]:
        """Returns the doubtful values that the model says are none."""
        given = verdicts(await self._answer(inquiry), inquiry.questions)
        for verdict in given:
            self._count(verdict)
        return denied(inquiry.questions, given)

    async def _answer(self, inquiry: SideCall) -> str:
        if self._to.health.resting(inquiry.target.id) > 0:
            return ""
        try:
            return await asyncio.wait_for(self._ask(inquiry), inquiry.timeout_ms / 1000)
        except (TimeoutError, EgressDenied, UpstreamFailure, msgspec.DecodeError) as error:
            _log.warning("no second opinion of %s (%s): it counts as found", inquiry.target.id, type(error).__name__)
            return ""

    async def _ask(self, inquiry: SideCall) -> str:
        target, call, guard = inquiry.target, inquiry.call(), inquiry.guard.stricter(away)
        adapter, lease = self._to.adapters[target.provider.wire], ReplicaLease(self._to.replicas, target, None, [])
        try:
            outbound = OutboundRequest(guard, target, adapter.encode(call), inquiry.classes, url=lease.url)
            with closing(await self._to.egress.send(outbound, _within(inquiry.timeout_ms), _unnoted)) as response:
                body = await response.read() if response.status == 200 else b""
            return adapter.decode(call, body).content if body else ""
        except UpstreamFailure as error:
            if error.failure.kind is ErrorKind.CONNECT:  # after a timeout the replica may just have been slow
                lease.broke()
            raise
        finally:
            lease.leave()


def _within(limit_ms: int) -> Timeouts:
    return Timeouts(connect=limit_ms, first=limit_ms, between=limit_ms, total=limit_ms)


def _unnoted(classes: frozenset[str]) -> None:
    """Does nothing: side calls have no ledger row."""


# Verifiers with their resources: the egress filter for HTTP verifiers, child processes for the others.

LARGEST = 65_536
"""Maximum bytes of a verifier's reply, which holds one number."""
_HEADERS = (("content-type", "application/json"), ("accept", "application/json"), ("user-agent", "lowpass"))


class _OpinionReply(Struct):
    score: float | None = None
    passed: bool | None = None


_reply = msgspec.json.Decoder(_OpinionReply)


class Verifiers:
    """Runs verifiers. Use inside one event loop; `close()` at the end. `count` is called with each result."""

    def __init__(self, egress: EgressFilter, count: Callable[[str, CheckResult], object]) -> None:
        self._egress, self._count, self._pool = egress, count, VerifierPool()

    def adopt(self, every: Iterable[Verifier]) -> None:
        """Starts the child processes of all verifiers in the policy in force, and ends all others."""
        self._pool.start_only(child_works(every))

    def of(self, verifiers: Sequence[Verifier], guard: ClassGuard) -> Verify:
        """Returns a function that runs `verifiers`. `guard`: of the policy under which the request was decided."""

        async def post(verifier: HttpVerifier, query: VerifierRequest, body: bytes) -> float | None:
            return await self._post(guard, verifier, query, body)

        ports = VerifierPorts(post, self._pool, self._count)

        async def verify(query: VerifierRequest) -> Sequence[OutcomeVerdict]:
            return await verify_all(verifiers, query, ports)

        return verify

    async def close(self) -> None:
        await self._pool.close()

    async def _post(
        self, guard: ClassGuard, verifier: HttpVerifier, query: VerifierRequest, body: bytes
    ) -> float | None:
        key = "" if verifier.api_key is None else f"Bearer {verifier.api_key.get_secret_value()}"
        headers = (*_HEADERS, ("authorization", key)) if key else _HEADERS
        request = UpstreamRequest("POST", verifier.path, headers, body)
        # All classes bind, since placeholders in the answer have been replaced by the values again.
        outbound = OutboundRequest(guard, verifier.target, request, query.classes, region=query.request.limits.region)
        try:
            with closing(await self._egress.send(outbound, _within(verifier.timeout_ms), _unnoted)) as response:
                if response.status != 200:
                    raise Crashed(f"status {response.status}")
                return _score(await _short(response.chunks()))
        except EgressDenied:
            raise ClassForbids from None
        except UpstreamFailure as error:
            if error.failure.kind is ErrorKind.TIMEOUT:
                raise TimeoutError from None
            raise Crashed(error.failure.kind) from None


async def _short(chunks: AsyncIterator[bytes]) -> bytes:
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) > LARGEST:
            raise InvalidReply
    return body


def _score(body: bytes) -> float | None:
    """Returns the score of `{"score": 0.5}` or `{"passed": true}`; None if its value is null. Raises `InvalidReply`."""
    try:
        reply = _reply.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidReply from None
    score = float(reply.passed) if reply.score is None and reply.passed is not None else reply.score
    if score is not None and not 0 <= score <= 1:
        raise InvalidReply
    return score


# Posts to an operator's webhooks in the background, with a limited number of tries.

WAITS_S = (1.0, 2.0, 4.0, 8.0)
"""Pauses in seconds between tries: five tries in all."""
MOST_WAITING = 1_000
"""Maximum number of posts under way; further ones are dropped and logged."""
_TIMEOUTS = Timeouts(connect=5_000, first=5_000, between=5_000, total=5_000)


class Webhooks:
    """Use inside one event loop. Logs only the host of an address, since the rest may hold a secret."""

    def __init__(self, egress: EgressFilter, waits_s: tuple[float, ...] = WAITS_S) -> None:
        self._egress, self._waits_s = egress, waits_s
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def post(self, url: str, body: bytes) -> None:
        """Starts the delivery of `body` and returns at once."""
        if self.pending >= MOST_WAITING:
            _log.error("an alert was not posted to %s: %d are waiting", urlsplit(url).hostname, MOST_WAITING)
            return
        task = asyncio.get_running_loop().create_task(self._deliver(url, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancels all deliveries in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _deliver(self, url: str, body: bytes) -> None:
        problem = ""
        for wait_s in (0.0, *self._waits_s):
            await asyncio.sleep(wait_s)
            if not (problem := await self._try(url, body)):
                return
        _log.error("an alert was not delivered: %s %s", urlsplit(url).hostname, problem)

    async def _try(self, url: str, body: bytes) -> str:
        """Posts once; returns what went wrong, empty for a 2xx."""
        try:
            response = await self._egress.post(url, UpstreamRequest("POST", "", _HEADERS, body), _TIMEOUTS)
        except UpstreamFailure as failure:
            return f"failed ({failure.failure.kind})"
        except EgressDenied:
            return "may not have it"
        except Exception as error:  # no error may end the gateway's own work
            return f"failed ({type(error).__name__})"
        response.close()
        return "" if 200 <= response.status < 300 else f"answered {response.status}"


# Counts a prompt's tokens for one target: with OpenAI's encodings or a local engine's own tokenizer.

PATIENCE = Timeouts(connect=500, first=2_000, between=2_000, total=2_000)
"""Timeouts for a tokenizer call; a slower engine is busy, and the estimate is used."""
_TRANSLATED = (Endpoint.MESSAGES, Endpoint.RESPONSES)
_VLLM = frozenset(
    ["model", "messages", "prompt", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt"]
)
"""Fields of a request that vLLM's tokenizer endpoint uses."""


async def count(dispatcher: Dispatcher, target: Target, gate: Gate, effort: str, asks: bool) -> PromptCount | None:
    """Returns the counted tokens, or None. `effort`: as templates use it; `asks`: whether engines may be asked."""
    redacted = gate.redacted if gate.redacted is not None and must_redact(target, gate) else None
    original, classes = gate.request, gate.classification.classes
    request, classes = (original, classes) if redacted is None else (redacted.request, redacted.classes)
    if name := encoding(target):
        media = media_tokens(target, request), media_tokens(target, request, usual=True)
        return await asyncio.get_running_loop().run_in_executor(COUNTING, count_prompt, name, request, *media)
    unread = request.images or request.audio_seconds or request.file_bytes
    if unread or request.prompts > 1 or not (asks and target.provider.local and target.provider.quirks.tokenize):
        return None
    call = Call(
        target=target,
        endpoint=Endpoint.CHAT if request.endpoint in _TRANSLATED else request.endpoint,
        body=request.body if request.chat is None else request.chat,
        model=request.model,
        request_id=request.id,
        effort=effort or None,
        languages=UNKNOWN if target.prompt is None else languages(request),
    )
    lease, region = ReplicaLease(dispatcher.replicas, target, request, []), request.limits.region
    try:
        sent = dispatcher.adapters[target.provider.wire].encode(call)
        hidden = redacted is not None
        outbound = OutboundRequest(gate.guard, target, sent, classes, hidden, region, lease.url, beside=True)
        tokens = await _engine_count(dispatcher.egress, outbound)
    except (UpstreamFailure, ClientError, msgspec.MsgspecError, KeyError) as error:
        _log.warning("%s did not count a prompt (%s): the estimate stands", target.id, type(error).__name__)
        return None
    finally:
        lease.leave()
    return PromptCount(tokens, tokens, tokens)


async def _engine_count(egress: EgressFilter, outbound: OutboundRequest) -> int:
    """Counts the prompt of an encoded request. Raises KeyError if the reply has another form."""

    async def post(path: str, body: object) -> dict[str, Any]:
        request = UpstreamRequest("POST", path, outbound.request.headers, msgspec.json.encode(body))
        with closing(await egress.send(structs.replace(outbound, request=request), PATIENCE, _unnoted)) as response:
            answer = msgspec.json.decode(await response.read(), type=dict[str, Any])
            return answer if response.status == 200 else {}

    body: dict[str, Any] = msgspec.json.decode(outbound.request.body)
    if "input" in body:
        body["prompt"] = body.pop("input")
    if outbound.target.provider.quirks.tokenize == "vllm":
        fields = {name: value for name, value in body.items() if name in _VLLM}
        return int((await post("/tokenize", fields))["count"])
    prompt = body["prompt"] if "prompt" in body else (await post("/apply-template", body))["prompt"]
    return len((await post("/tokenize", {"content": prompt, "add_special": True, "parse_special": True}))["tokens"])
