"""The one table of behaviours: the model's name selects a row, on every wire, plain and streamed.

The token counts below are what a test may expect to the unit; `tests.upstream.expect.reported` says which of them a
given wire lets through.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec import Struct

from tests.upstream.ask import Ask
from tests.upstream.schema import STRING, instance

TEXT = ("Grüße ", "aus Köln: ", "你好 👋", ".")
REASONING = ("First I think, ", "dann überlege ich ", "again.")
REFUSAL = ("I can't ", "help with that.")
HUGE_PIECE = "0123456789abcdé " * 4096
HUGE = (HUGE_PIECE,) * 76
"""≈ 5 MB of UTF-8."""
CUT_ARGUMENTS = 5
"""Characters of tool arguments in one streamed piece."""


class Tokens(Struct, frozen=True):
    """Disjoint buckets, one choice. `reasoning` is None only where a wire does not tell it apart."""

    uncached: int = 0
    visible: int = 0
    reasoning: int | None = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0

    @property
    def input(self) -> int:
        return self.uncached + self.cache_read + self.cache_write + self.cache_write_1h

    @property
    def output(self) -> int:
        return self.visible + (self.reasoning or 0)

    def choices(self, n: int) -> "Tokens":
        """The count of `n` choices like this one: one prompt, n outputs."""
        thought = None if self.reasoning is None else self.reasoning * n
        return msgspec.structs.replace(self, visible=self.visible * n, reasoning=thought)

    def share(self, part: int, whole: int) -> "Tokens":
        """The count after `part` of `whole` pieces of output: input is known from the start."""
        thought = None if self.reasoning is None else self.reasoning * part // whole
        return msgspec.structs.replace(self, visible=self.visible * part // whole, reasoning=thought)


NORMAL = Tokens(uncached=20, visible=10)
THOUGHTFUL = Tokens(uncached=20, visible=10, reasoning=30)
ONLY_THOUGHT = Tokens(uncached=20, reasoning=30)
CACHED = Tokens(uncached=12, visible=10, cache_read=40, cache_write=24, cache_write_1h=8)
EXHAUSTED = Tokens(uncached=20, reasoning=200)
HUGE_TOKENS = Tokens(uncached=20, visible=1_300_000)
ZERO = Tokens()
EMBEDDING = Tokens(uncached=4)
"""Of each input of an embeddings request."""


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    arguments: str

    @property
    def pieces(self) -> tuple[str, ...]:
        return tuple(self.arguments[i : i + CUT_ARGUMENTS] for i in range(0, len(self.arguments), CUT_ARGUMENTS))


class Answer(Struct, frozen=True, kw_only=True):
    """One choice, in pieces as a stream would deliver them; `finish` in OpenAI's words."""

    text: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    refusal: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    logprobs: bool = False


def _speak(ask: Ask, index: int) -> Answer:
    return Answer(text=TEXT)


def _say_which(ask: Ask, index: int) -> Answer:
    return Answer(text=(*TEXT, f" #{index}"))


def _fit_schema(ask: Ask, index: int) -> Answer:
    text = msgspec.json.encode(instance(ask.schema or {"type": "object"})).decode()
    return Answer(text=(text[:3], text[3:]))


def _call_tools(ask: Ask, count: int) -> Answer:
    if not ask.tools and ask.schema:
        return _fit_schema(ask, 0)
    offered = [(tool.name, instance(tool.schema)) for tool in ask.tools] or [("get_weather", {"city": STRING})]
    chosen = (offered * count)[:count]
    calls = [ToolCall(f"call_{i}", name, msgspec.json.encode(value).decode()) for i, (name, value) in enumerate(chosen)]
    return Answer(calls=tuple(calls), finish="tool_calls")


class Reports(StrEnum):
    """Where the usage stands."""

    AT_END = "at_end"
    MISSING = "missing"
    WITH_CONTENT = "with_content"
    EVERYWHERE = "everywhere"


class Framing(StrEnum):
    """How a stream's events become TCP writes."""

    ONE_EACH = "one_each"
    SPLIT = "split"
    MERGED = "merged"
    CRLF_COMMENTS = "crlf_comments"


class Break(StrEnum):
    """How a reply ends early."""

    HANG = "hang"
    CUT = "cut"
    ERROR = "error"
    GARBAGE = "garbage"
    HTML = "html"
    SILENCE = "silence"


class KeepAlive(StrEnum):
    """What becomes of the connection after the reply."""

    KEEP = "keep"
    CLOSE_AFTER = "close_after"
    CLOSE_UNDER_NEXT = "close_under_next"


class Behaviour(Struct, frozen=True, kw_only=True):
    """`fault` is an error reply instead of an answer: a key of every wire's table of errors."""

    answer: Callable[[Ask, int], Answer] = _speak
    tokens: Tokens = NORMAL
    reports: Reports = Reports.AT_END
    framing: Framing = Framing.ONE_EACH
    fault: str = ""
    once: bool = False
    """The fault meets only the first request under this model name since the last clear."""
    breaks: Break | None = None
    breaks_early: bool = False
    """After the first piece of content instead of half-way."""
    slow_first: bool = False
    slow_chunks: bool = False
    pause_s: float = 0
    """Between two chunks."""
    keep_alive: KeepAlive = KeepAlive.KEEP


BEHAVIOURS: dict[str, Behaviour] = {
    "normal": Behaviour(),
    "cached": Behaviour(tokens=CACHED),
    "slow-first": Behaviour(slow_first=True),
    "slow-chunks": Behaviour(slow_chunks=True),
    "split-frames": Behaviour(framing=Framing.SPLIT),
    "merged-frames": Behaviour(framing=Framing.MERGED),
    "crlf-comments": Behaviour(framing=Framing.CRLF_COMMENTS),
    "missing-usage": Behaviour(reports=Reports.MISSING),
    "usage-in-last-content": Behaviour(reports=Reports.WITH_CONTENT),
    "cumulative-usage": Behaviour(reports=Reports.EVERYWHERE),
    "zero-usage": Behaviour(tokens=ZERO),
    "reasoning": Behaviour(answer=lambda ask, i: Answer(text=TEXT, reasoning=REASONING), tokens=THOUGHTFUL),
    "reasoning-only": Behaviour(answer=lambda ask, i: Answer(reasoning=REASONING), tokens=ONLY_THOUGHT),
    "empty-length": Behaviour(answer=lambda ask, i: Answer(finish="length"), tokens=EXHAUSTED),
    "refusal": Behaviour(answer=lambda ask, i: Answer(refusal=REFUSAL)),
    "tools": Behaviour(answer=lambda ask, i: _call_tools(ask, 1)),
    "parallel-tools": Behaviour(answer=lambda ask, i: _call_tools(ask, 2)),
    "schema": Behaviour(answer=_fit_schema),
    "logprobs": Behaviour(answer=lambda ask, i: Answer(text=TEXT, logprobs=True)),
    "many": Behaviour(answer=_say_which),
    "huge": Behaviour(answer=lambda ask, i: Answer(text=HUGE), tokens=HUGE_TOKENS),
    "cut": Behaviour(breaks=Break.CUT),
    "error-in-stream": Behaviour(breaks=Break.ERROR),
    "bad-json": Behaviour(breaks=Break.HTML),
    "bad-sse-json": Behaviour(breaks=Break.GARBAGE),
    "hang": Behaviour(breaks=Break.SILENCE),
    "hang-after-first": Behaviour(breaks=Break.HANG, breaks_early=True),
    "cut-after-first": Behaviour(breaks=Break.CUT, breaks_early=True),
    "rate-limited": Behaviour(fault="rate"),
    "rate-limited-once": Behaviour(fault="rate", once=True),
    "flaky": Behaviour(fault="server", once=True),
    "error-500": Behaviour(fault="server"),
    "overloaded": Behaviour(fault="overloaded"),
    "auth": Behaviour(fault="auth"),
    "quota": Behaviour(fault="quota"),
    "context-length": Behaviour(fault="context"),
    "content-filter": Behaviour(fault="filter"),
    "close-keepalive": Behaviour(keep_alive=KeepAlive.CLOSE_AFTER),
    "close-under-next": Behaviour(keep_alive=KeepAlive.CLOSE_UNDER_NEXT),
}
