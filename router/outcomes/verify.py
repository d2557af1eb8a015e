"""Verification of answers, and the child processes that run Python verifiers and schemas."""

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

# The gateway's side of child processes: started before they are needed, killed when they hang, replaced.

START_S = 30.0
"""How long the function's own imports may take."""
PAUSE_S = 5.0
"""After a start that failed, the pool waits so long before the next."""
LONGEST_LINE = 65_536
"""Bytes of one answer, which is a number."""
_KEPT = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")
"""All that a child has of our environment: what else is there may be a secret."""
_NO_START = "it does not start"
_log = logging.getLogger(__name__)


class Crashed(Exception):
    """The process ended, or the function raised; says only the type of what it raised."""


class InvalidReply(Exception):
    """The function said something that is neither a score, a yes or no, nor nothing."""


class ChildWork(Struct, frozen=True):
    """What a child runs: "module:function"."""

    function: str
    memory_mb: int = 1_024
    processes: int = 1


class _ChildReply(Struct):
    score: float | None = None
    failed: str = ""
    nonsense: bool = False


_reply = msgspec.json.Decoder(_ChildReply)


class VerifierPool:
    """Use inside one running event loop; `close()` at the end."""

    def __init__(self) -> None:
        self._children: dict[ChildWork, _Children] = {}
        self._dismissed: list[_Children] = []

    def keep(self, works: Iterable[ChildWork]) -> None:
        """Starts the children of these, so that no request waits for imports, and ends all others."""
        wanted = set(works)
        for gone in self._children.keys() - wanted:
            self._dismissed.append(self._children.pop(gone))
            self._dismissed[-1].end()
        for work in wanted:
            self._of(work).fill()

    async def call(self, work: ChildWork, *arguments: object) -> float | None:
        """What the function says. Cancelled, it kills the child: set a time limit around it.

        Raises `Crashed` and `InvalidReply`.
        """
        question, children = msgspec.json.encode(arguments), self._of(work)
        child = await children.idle()
        try:
            reply = _reply.decode(await child.ask(question))
        except BaseException as error:
            # Half an answer may be under way: the next one must not get it.
            children.lose(child)
            if isinstance(error, OSError | EOFError | ValueError):
                raise Crashed(type(error).__name__) from None
            raise
        children.put(child)
        if reply.failed:
            raise Crashed(reply.failed)
        if reply.nonsense:
            raise InvalidReply
        return reply.score

    async def close(self) -> None:
        self.keep(())
        await asyncio.gather(*(children.ended() for children in self._dismissed))
        self._dismissed.clear()

    def _of(self, work: ChildWork) -> "_Children":
        if work not in self._children:
            self._children[work] = _Children(work)
        return self._children[work]


class _Children:
    """The children of one function: some idle, some busy, some starting."""

    def __init__(self, work: ChildWork) -> None:
        self._work = work
        self._idle: asyncio.Queue[ChildProcess | None] = asyncio.Queue()
        self._all: set[ChildProcess] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._count, self._waiting, self._not_before = 0, 0, 0.0
        self._over = False

    async def idle(self) -> ChildProcess:
        """Waits for one. Raises `Crashed` where none can be started."""
        if self._idle.empty():
            self.fill(at_least=False)
        if self._count == 0 and self._idle.empty():
            raise Crashed(_NO_START)
        self._waiting += 1
        try:
            child = await self._idle.get()
        finally:
            self._waiting -= 1
        if child is None:
            raise Crashed(_NO_START)
        return child

    def fill(self, at_least: bool = True) -> None:
        """One more, if there may be one; `at_least`: only if there is none yet."""
        loop = asyncio.get_running_loop()
        most = 1 if at_least else self._work.processes
        if self._over or self._count >= most or loop.time() < self._not_before:
            return
        self._count += 1
        task = loop.create_task(self._start())
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    async def _start(self) -> None:
        child = ChildProcess(
            *("router.outcomes.child", self._work.function, str(self._work.memory_mb)),
            longest_line=LONGEST_LINE,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            own_session=True,
        )
        self._all.add(child)
        try:
            await asyncio.wait_for(child.start(), START_S)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            _log.warning("%s does not start (%s)", self._work.function, type(error).__name__)
            self._not_before = asyncio.get_running_loop().time() + PAUSE_S
            self.lose(child)
            for _ in range(self._waiting):
                self._idle.put_nowait(None)
            return
        self.put(child)

    def put(self, child: ChildProcess) -> None:
        if self._over:
            self.lose(child)
        else:
            self._idle.put_nowait(child)

    def lose(self, child: ChildProcess) -> None:
        self._count -= 1
        child.kill()
        # It stays until the system has confirmed its end, which is not waited for here.
        self._all = {other for other in self._all if not other.over}
        if self._waiting:
            self.fill(at_least=False)

    def end(self) -> None:
        self._over = True
        for task in self._starts:
            task.cancel()
        for child in self._all:
            child.kill()

    async def ended(self) -> None:
        await asyncio.gather(*self._starts, *(child.gone() for child in self._all), return_exceptions=True)


# All verifiers of a route over one answer. Never raises, never hangs: what breaks says nothing, and is counted.

_Elsewhere = HttpVerifier | PythonVerifier | JsonSchema | ToolCallValid
"""Verifiers that answer from another process or machine."""
SCHEMA_MS = 1_000
"""How long a schema may be followed; most take less than one."""
_SCHEMAS = ChildWork("router.outcomes.verifiers:child", memory_mb=512)


class CheckResult(StrEnum):
    """Of one verifier and one answer."""

    YES = "yes"
    NO = "no"
    NOT_APPLICABLE = "not_applicable"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NONSENSE = "nonsense"
    KEPT_IN = "kept_in"
    """The door lets the request's classes not go there."""


class ClassForbids(Exception):
    """Nothing was sent: a class of the request may not go there."""


class VerifierPorts(Struct, frozen=True):
    """What verifiers need of the world. `post` raises `ClassForbids`, `Crashed` or `InvalidReply`."""

    post: Callable[[HttpVerifier, VerifierRequest, bytes], Awaitable[float | None]]
    """Sends a body to its place, through the egress filter; returns what it said."""
    pool: VerifierPool
    count: Callable[[str, CheckResult], object]


_FAILED: Mapping[type[Exception], CheckResult] = {
    TimeoutError: CheckResult.TIMEOUT,
    ClassForbids: CheckResult.KEPT_IN,
    InvalidReply: CheckResult.NONSENSE,
}


async def verify_all(
    verifiers: Sequence[Verifier], answered: VerifierRequest, ports: VerifierPorts
) -> Sequence[Verdict]:
    """In the order of `verifiers`; takes no longer than the slowest may."""
    slow = [verifier for verifier in verifiers if isinstance(verifier, _Elsewhere)]
    verdicts = (
        await asyncio.gather(*(_verdict(verifier, answered, ports) for verifier in slow)) if len(slow) > 1 else ()
    )
    ready = dict(zip(map(id, slow), verdicts, strict=False))
    return [ready.get(id(verifier)) or await _verdict(verifier, answered, ports) for verifier in verifiers]


def works(verifiers: Iterable[Verifier]) -> list[ChildWork]:
    """The children that these need: for `VerifierPool.keep`."""
    schemas = any(isinstance(verifier, JsonSchema | ToolCallValid) for verifier in verifiers)
    functions = {_work(verifier) for verifier in verifiers if isinstance(verifier, PythonVerifier)}
    return [*functions, *([_SCHEMAS] if schemas else [])]


def score_rows(
    verifiers: Sequence[Verifier], verdicts: Sequence[Verdict], request_id: str, attempt: int, target: str
) -> list[SourceScore]:
    """Rows for the log: one for each verdict that says something. Only one of them counts, however many agree: the
    least score; of equal ones, one that decides."""
    deciding = {verifier.name: verifier.decides for verifier in verifiers}
    spoken = [
        (verdict.score, not deciding.get(verdict.verifier, True), verdict.verifier)
        for verdict in verdicts
        if verdict.score is not None
    ]
    no = min(spoken, default=None)
    yes = min((scored for scored in spoken if not scored[1]), default=no)
    counts = no if no is not None and no[0] < PASSED else yes
    return [
        SourceScore(
            request_id=request_id,
            attempt=attempt,
            target=target,
            source=f"verifier.{name}",
            score=score,
            weight=float((score, formal, name) == counts),
            decides=not formal,
        )
        for score, formal, name in spoken
    ]


async def _verdict(verifier: Verifier, answered: VerifierRequest, ports: VerifierPorts) -> Verdict:
    name = verifier.name
    try:
        score = await _score(verifier, answered, ports)
    except Exception as error:  # whatever it is, an answer must not wait for it, nor its text be told
        became = _FAILED.get(type(error), CheckResult.CRASHED)
        ports.count(name, became)
        # Only what is ours: another exception's message may quote the answer.
        why = str(error) if isinstance(error, Crashed) else type(error).__name__
        _log.warning("verifier %s said nothing: %s (%s)", name, became, why)
        return Verdict(name, None)
    ports.count(
        name, CheckResult.NOT_APPLICABLE if score is None else CheckResult.YES if score >= PASSED else CheckResult.NO
    )
    return Verdict(name, score)


async def _score(verifier: Verifier, answered: VerifierRequest, ports: VerifierPorts) -> float | None:
    """All choices must be right: one no is a no, whatever is not known of the others."""
    if not isinstance(verifier, _Elsewhere):
        return least(verifier.check(answered.request, answer) for answer in answered.answers)
    limit_ms = verifier.timeout_ms if isinstance(verifier, HttpVerifier | PythonVerifier) else SCHEMA_MS
    async with asyncio.timeout(limit_ms / 1000):
        return least([await _outside(verifier, answered, answer, ports) for answer in answered.answers])


def least(scores: Iterable[float | None]) -> float | None:
    known = list(scores)
    given = [score for score in known if score is not None]
    worst = min(given, default=None)
    return worst if len(given) == len(known) or (worst is not None and worst < PASSED) else None


async def _outside(
    verifier: _Elsewhere, answered: VerifierRequest, answer: AnswerChoice, ports: VerifierPorts
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
        return await ports.pool.call(_work(verifier), answer, body)
    claims = verifier.claims(request, answer)
    if not isinstance(claims, tuple):
        return claims
    return await ports.pool.call(_SCHEMAS, claims) if claims else 1.0


def _work(verifier: PythonVerifier) -> ChildWork:
    return ChildWork(verifier.function, verifier.memory_mb, verifier.processes)
