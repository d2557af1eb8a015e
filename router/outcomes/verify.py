"""Runs verifiers over answers, and the child processes of Python verifiers and schemas."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from router.outcomes.checks import HttpVerifier, PythonVerifier, Verifier
from router.outcomes.verifiers import JsonSchema, ToolCallValid, expected
from router.processes import ChildProcess
from router.types.attempt import PASSED, AnswerChoice, SourceScore, Verdict, VerifierRequest

# The gateway's side of child processes: started in advance, killed when they hang, and replaced.

START_S = 30.0
"""Maximum time in seconds for a child to start, including the function's imports."""
RESTART_PAUSE_S = 5.0
"""Time in seconds after a failed start before the next one."""
LONGEST_REPLY_BYTES = 65_536
"""Maximum bytes of a child's reply, which holds one number."""
_PASSED_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")
"""Environment variables that a child gets; others may be secrets."""
_NOT_STARTED = "it does not start"
_log = logging.getLogger(__name__)


class Crashed(Exception):
    """The process ended or the function raised; names only the type of the exception."""


class InvalidReply(Exception):
    """The function returned neither a score, a boolean nor None."""


class ChildWork(Struct, frozen=True):
    """What a child process runs. `function`: "module:function"."""

    function: str
    memory_mb: int = 1_024
    processes: int = 1


class _ChildReply(Struct):
    score: float | None = None
    failed: str = ""
    nonsense: bool = False


_reply_decoder = msgspec.json.Decoder(_ChildReply)


class VerifierPool:
    """The child processes of all functions. Use inside one running event loop; `close()` at the end."""

    def __init__(self) -> None:
        self._children: dict[ChildWork, _Children] = {}
        self._dismissed: list[_Children] = []

    def start_only(self, wanted_works: Iterable[ChildWork]) -> None:
        """Starts a child for each of these, so that no request waits for imports, and ends all others."""
        wanted = set(wanted_works)
        for unwanted in self._children.keys() - wanted:
            self._dismissed.append(self._children.pop(unwanted))
            self._dismissed[-1].end()
        for work in wanted:
            self._children_for(work).fill()

    async def call(self, work: ChildWork, *arguments: object) -> float | None:
        """Returns the function's result. Cancellation kills the child, so set a time limit around it.

        Raises `Crashed` and `InvalidReply`.
        """
        encoded, children = msgspec.json.encode(arguments), self._children_for(work)
        child = await children.idle()
        try:
            reply = _reply_decoder.decode(await child.ask(encoded))
        except BaseException as error:
            # Part of a reply may be under way, which the next call must not get.
            children.discard(child)
            if isinstance(error, OSError | EOFError | ValueError):
                raise Crashed(type(error).__name__) from None
            raise
        children.add_idle(child)
        if reply.failed:
            raise Crashed(reply.failed)
        if reply.nonsense:
            raise InvalidReply
        return reply.score

    async def close(self) -> None:
        self.start_only(())
        await asyncio.gather(*(children.wait_ended() for children in self._dismissed))
        self._dismissed.clear()

    def _children_for(self, work: ChildWork) -> "_Children":
        if work not in self._children:
            self._children[work] = _Children(work)
        return self._children[work]


class _Children:
    """The child processes of one function: some idle, some busy, some starting."""

    def __init__(self, work: ChildWork) -> None:
        self._work = work
        self._idle: asyncio.Queue[ChildProcess | None] = asyncio.Queue()
        self._all: set[ChildProcess] = set()
        self._start_tasks: set[asyncio.Task[None]] = set()
        self._count, self._waiting, self._next_start_s = 0, 0, 0.0
        self._has_ended = False

    async def idle(self) -> ChildProcess:
        """Waits for an idle child. Raises `Crashed` if none can be started."""
        if self._idle.empty():
            self.fill(only_first=False)
        if self._count == 0 and self._idle.empty():
            raise Crashed(_NOT_STARTED)
        self._waiting += 1
        try:
            child = await self._idle.get()
        finally:
            self._waiting -= 1
        if child is None:
            raise Crashed(_NOT_STARTED)
        return child

    def fill(self, only_first: bool = True) -> None:
        """Starts one more child if allowed; `only_first`: only if there is none yet."""
        loop = asyncio.get_running_loop()
        limit = 1 if only_first else self._work.processes
        if self._has_ended or self._count >= limit or loop.time() < self._next_start_s:
            return
        self._count += 1
        task = loop.create_task(self._start())
        self._start_tasks.add(task)
        task.add_done_callback(self._start_tasks.discard)

    async def _start(self) -> None:
        child = ChildProcess(
            *("router.outcomes.child", self._work.function, str(self._work.memory_mb)),
            longest_line=LONGEST_REPLY_BYTES,
            env={name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
            own_session=True,
        )
        self._all.add(child)
        try:
            await asyncio.wait_for(child.start(), START_S)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            _log.warning("%s does not start (%s)", self._work.function, type(error).__name__)
            self._next_start_s = asyncio.get_running_loop().time() + RESTART_PAUSE_S
            self.discard(child)
            for _ in range(self._waiting):
                self._idle.put_nowait(None)
            return
        self.add_idle(child)

    def add_idle(self, child: ChildProcess) -> None:
        if self._has_ended:
            self.discard(child)
        else:
            self._idle.put_nowait(child)

    def discard(self, child: ChildProcess) -> None:
        self._count -= 1
        child.kill()
        # It stays in the set until the system confirms its end, which is not awaited here.
        self._all = {other for other in self._all if not other.over}
        if self._waiting:
            self.fill(only_first=False)

    def end(self) -> None:
        self._has_ended = True
        for task in self._start_tasks:
            task.cancel()
        for child in self._all:
            child.kill()

    async def wait_ended(self) -> None:
        await asyncio.gather(*self._start_tasks, *(child.gone() for child in self._all), return_exceptions=True)


# Runs all verifiers of a route over an answer. Never raises or hangs; errors are counted and give no score.

_OutOfProcess = HttpVerifier | PythonVerifier | JsonSchema | ToolCallValid
"""Verifiers that run in another process or machine."""
SCHEMA_MS = 1_000
"""Time limit in ms for a schema check; most take less than 1 ms."""
_SCHEMAS = ChildWork("router.outcomes.verifiers:child", memory_mb=512)


class CheckResult(StrEnum):
    """Result of one verifier for one answer."""

    YES = "yes"
    NO = "no"
    NOT_APPLICABLE = "not_applicable"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NONSENSE = "nonsense"
    KEPT_IN = "kept_in"
    """The egress filter does not let the request's classes go there."""


class ClassForbids(Exception):
    """Raised if a class of the request may not go to a verifier; nothing was sent."""


class VerifierPorts(Struct, frozen=True):
    """Access to HTTP, child processes and metrics. `post` raises `ClassForbids`, `Crashed` or `InvalidReply`."""

    post: Callable[[HttpVerifier, VerifierRequest, bytes], Awaitable[float | None]]
    """Posts a body to a verifier through the egress filter; returns its score."""
    pool: VerifierPool
    count: Callable[[str, CheckResult], object]


_RESULT_BY_ERROR: Mapping[type[Exception], CheckResult] = {
    TimeoutError: CheckResult.TIMEOUT,
    ClassForbids: CheckResult.KEPT_IN,
    InvalidReply: CheckResult.NONSENSE,
}


async def verify_all(
    verifiers: Sequence[Verifier], answered: VerifierRequest, ports: VerifierPorts
) -> Sequence[Verdict]:
    """Returns the verdicts in the order of `verifiers`; those in other processes run concurrently."""
    outside = [verifier for verifier in verifiers if isinstance(verifier, _OutOfProcess)]
    verdicts = (
        await asyncio.gather(*(_verdict(verifier, answered, ports) for verifier in outside)) if len(outside) > 1 else ()
    )
    verdict_by_id = dict(zip(map(id, outside), verdicts, strict=False))
    return [verdict_by_id.get(id(verifier)) or await _verdict(verifier, answered, ports) for verifier in verifiers]


def child_works(verifiers: Iterable[Verifier]) -> list[ChildWork]:
    """Returns the work for `VerifierPool.keep` that these verifiers need."""
    needs_schemas = any(isinstance(verifier, JsonSchema | ToolCallValid) for verifier in verifiers)
    functions = {_child_work(verifier) for verifier in verifiers if isinstance(verifier, PythonVerifier)}
    return [*functions, *([_SCHEMAS] if needs_schemas else [])]


def score_rows(
    verifiers: Sequence[Verifier], verdicts: Sequence[Verdict], request_id: str, attempt: int, target: str
) -> list[SourceScore]:
    """Returns a log row for each verdict with a score. Only one has weight: the lowest score if it fails; otherwise the
    lowest of those that decide, or of all if none decides."""
    deciding = {verifier.name: verifier.decides for verifier in verifiers}
    scored = [
        (verdict.score, not deciding.get(verdict.verifier, True), verdict.verifier)
        for verdict in verdicts
        if verdict.score is not None
    ]
    lowest = min(scored, default=None)
    lowest_deciding = min((candidate for candidate in scored if not candidate[1]), default=lowest)
    weighted = lowest if lowest is not None and lowest[0] < PASSED else lowest_deciding
    return [
        SourceScore(
            request_id=request_id,
            attempt=attempt,
            target=target,
            source=f"verifier.{name}",
            score=score,
            weight=float((score, is_formal, name) == weighted),
            decides=not is_formal,
        )
        for score, is_formal, name in scored
    ]


async def _verdict(verifier: Verifier, answered: VerifierRequest, ports: VerifierPorts) -> Verdict:
    name = verifier.name
    try:
        score = await _score(verifier, answered, ports)
    except Exception as error:  # no answer may wait for it, and its message may hold text
        result = _RESULT_BY_ERROR.get(type(error), CheckResult.CRASHED)
        ports.count(name, result)
        # Log only our own messages: others may quote the answer.
        reason = str(error) if isinstance(error, Crashed) else type(error).__name__
        _log.warning("verifier %s said nothing: %s (%s)", name, result, reason)
        return Verdict(name, None)
    ports.count(
        name, CheckResult.NOT_APPLICABLE if score is None else CheckResult.YES if score >= PASSED else CheckResult.NO
    )
    return Verdict(name, score)


async def _score(verifier: Verifier, answered: VerifierRequest, ports: VerifierPorts) -> float | None:
    """Returns the lowest score over all choices; None if some are unknown and no score is a fail."""
    if not isinstance(verifier, _OutOfProcess):
        return lowest_score(verifier.check(answered.request, answer) for answer in answered.answers)
    limit_ms = verifier.timeout_ms if isinstance(verifier, HttpVerifier | PythonVerifier) else SCHEMA_MS
    async with asyncio.timeout(limit_ms / 1000):
        return lowest_score([await _score_outside(verifier, answered, answer, ports) for answer in answered.answers])


def lowest_score(scores: Iterable[float | None]) -> float | None:
    all_scores = list(scores)
    known = [score for score in all_scores if score is not None]
    lowest = min(known, default=None)
    return lowest if len(known) == len(all_scores) or (lowest is not None and lowest < PASSED) else None


async def _score_outside(
    verifier: _OutOfProcess, answered: VerifierRequest, answer: AnswerChoice, ports: VerifierPorts
) -> float | None:
    request = answered.request
    if isinstance(verifier, HttpVerifier):
        fields = {"request_id": request.id, "target": answered.target.id, "answer": answer}
        fields["expected"] = list(expected(request))
        if verifier.with_request:
            fields["request"] = request.chat or request.body
        return await ports.post(verifier, answered, msgspec.json.encode(fields))
    if isinstance(verifier, PythonVerifier):
        body = {name: msgspec.json.decode(raw) for name, raw in (request.chat or request.body).items()}
        return await ports.pool.call(_child_work(verifier), answer, body)
    claims = verifier.claims(request, answer)
    if not isinstance(claims, tuple):
        return claims
    return await ports.pool.call(_SCHEMAS, claims) if claims else 1.0


def _child_work(verifier: PythonVerifier) -> ChildWork:
    return ChildWork(verifier.function, verifier.memory_mb, verifier.processes)
