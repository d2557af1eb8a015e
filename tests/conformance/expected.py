"""What a client and the ledger must show of every (wire, behaviour, streamed): rules, and exceptions with reasons."""

from enum import StrEnum
from math import ceil
from typing import Any

import msgspec
from msgspec import Struct

from router.testing.upstream import BEHAVIOURS, FLAVOURS, OPENROUTER_COST_NANO, Behaviour, Tokens, reported
from router.testing.upstream.behaviours import NORMAL, Answer, Ask, Break, Fault, Tool, record
from router.testing.upstream.wires import Anthropic, Gemini
from tests.tables import data

WIRES = (*FLAVOURS, "anthropic", "gemini")
ASKED_AGAIN = {"flaky": 1, "rate-limited-once": 1, "error-500": 1}
"""Retries of the targets that have any."""
_DATA = data(__file__, "expected.yaml")
RATES, ASKS, ANSWERS = _DATA["rates"], _DATA["asks"], _DATA["answers"]
_FAULTS: dict[str | None, str] = _DATA["faults"]
_BREAKS: dict[Break, str] = _DATA["breaks"]
LACKS = {(wire, behaviour) for wire, behaviour, _ in _DATA["lacks"]}
OTHER_KINDS: dict[tuple[str, str], str] = {(wire, behaviour): kind for wire, behaviour, kind, _ in _DATA["other_kinds"]}
_STATED_IN_STREAM = ("openrouter", "vllm", "llamacpp", "anthropic", "gemini")
"""Wires whose error events carry a status or a type that tells "overloaded" from a failure."""

IDS = {"anthropic": "msg_upstream", "gemini": "resp_upstream"}
"""Of a chat answer; "chatcmpl-upstream" on all other wires."""
_SERVED = {"anthropic": "{model}-20260101", "gemini": "{model}-001"}
_REFUSES = {name: row.fault for name, row in FLAVOURS.items()}
_REFUSES |= {"anthropic": Anthropic().error, "gemini": Gemini().error}
_CALL_IDS = {"anthropic": "toolu_call_{at}", "gemini": "call_resp_upstream_0_{at}"}
_SHOWS_THOUGHTS = {"anthropic", "gemini", "mistral", *(name for name, row in FLAVOURS.items() if row.reasoning_field)}


class End(StrEnum):
    ANSWERED = "answered"
    BROKEN = "broken"
    """Status 200, some of the answer, and an error event."""
    REFUSED = "refused"
    LACKING = "lacking"


class Said(Struct, frozen=True):
    """One choice as read by a client. `calls` are (id, name, arguments), "" is any id; `tokens` with logprobs."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    finish: str | None = None
    tokens: tuple[str, ...] = ()


class Case(Struct, frozen=True):
    wire: str
    behaviour: str
    streamed: bool

    @property
    def target(self) -> str:
        return f"{self.wire}/{self.behaviour}/{'stream' if self.streamed else 'plain'}"

    @property
    def model(self) -> str:
        return f"{self.behaviour}@{self.wire}-{self.streamed:d}"

    @property
    def path(self) -> str:
        """Where the wire is spoken, below the upstream's address."""
        paths = {"anthropic": "/v1/messages", "gemini": f"/v1beta/models/{self.model}:streamGenerateContent?alt=sse"}
        return self.prefix + paths.get(self.wire, "/chat/completions")

    @property
    def prefix(self) -> str:
        """What a target's base URL ends in."""
        return "" if self.wire in ("anthropic", "gemini") else f"/{self.wire}/v1"

    @property
    def row(self) -> Behaviour:
        return BEHAVIOURS[self.behaviour]

    @property
    def n(self) -> int:
        return int(self.asks.get("n", 1))

    @property
    def asks(self) -> dict[str, Any]:
        fields: dict[str, Any] = ASKS.get(self.behaviour, {})
        return fields

    @property
    def end(self) -> End:
        if (self.wire, self.behaviour) in LACKS:
            return End.LACKING
        late = self.row.breaks in (Break.CUT, Break.HANG, Break.ERROR, Break.GARBAGE) and self.streamed
        failing = self.row.breaks is not None or (self.row.fault and not self.row.once)
        return End.BROKEN if late else End.REFUSED if failing else End.ANSWERED


EARLY = "ends-early"
"""Targets whose stream ends as if it were whole, without the wire's own end."""
DYING = "close-under-next"
"""Needs a second request to be seen; has a test of its own."""
CASES = [Case(wire, behaviour, streamed) for wire in WIRES for behaviour in BEHAVIOURS for streamed in (False, True)]


def ending(end: End) -> list[Case]:
    return [case for case in CASES if case.end is end]


def kind(case: Case) -> str:
    """How the failed attempts of a case are called in the ledger."""
    if (case.wire, case.behaviour) in OTHER_KINDS:
        return OTHER_KINDS[case.wire, case.behaviour]
    if case.row.breaks is None:
        return _FAULTS[case.row.fault]
    stated = case.streamed and case.row.breaks is Break.ERROR and case.wire in _STATED_IN_STREAM
    return "overloaded" if stated else _BREAKS[case.row.breaks]


def outcomes(case: Case) -> list[str]:
    if case.end is End.LACKING:
        return []
    if case.end is End.ANSWERED:
        return [*([kind(case)] if case.row.once else []), "ok"]
    return [kind(case)] * (1 + ASKED_AGAIN.get(case.behaviour, 0))


def complaint(case: Case) -> tuple[int | None, str, str | None]:
    """The provider's own status, message and param for a refused case; status None where no answer came."""
    if not case.row.fault:
        fault = Fault("server") if case.row.breaks is Break.ERROR else None
        return (500 if fault else None if case.row.breaks is Break.SILENCE else 200), "", None
    status, body = _REFUSES[case.wire](Fault(case.row.fault))
    error = record(body).get("error", body)
    said = {"message": error} if isinstance(error, str) else record(error)
    return status, str(said["message"]), said.get("param")


def said(case: Case) -> list[Said]:
    """What the client must read of an answered case, choice by choice."""
    tools = tuple(Tool(tool["function"]["name"], tool["function"]["parameters"]) for tool in case.asks.get("tools", ()))
    schema = case.asks.get("response_format", {}).get("json_schema", {}).get("schema")
    ask = Ask(model=case.model, n=case.n, schema=schema, tools=tools)
    return [_choice(case, case.row.answer(ask, index)) for index in range(case.n)]


def _choice(case: Case, answer: Answer) -> Said:
    # The scripted Gemini makes one token of each part, and a whole answer has one part.
    tokens = ("".join(answer.text),) if case.wire == "gemini" and not case.streamed else answer.text
    plain = Said(
        text="".join(answer.text),
        reasoning="".join(answer.reasoning) if case.wire in _SHOWS_THOUGHTS else "",
        refusal="".join(answer.refusal),
        calls=_calls(case, answer),
        finish=answer.finish,
        tokens=tokens if answer.logprobs else (),
    )
    if not plain.refusal or case.wire not in _SERVED:
        return plain
    # Messages refuses in plain text, Gemini by its finish reason alone; both are OpenAI's content_filter.
    text = plain.refusal if case.wire == "anthropic" else ""
    return msgspec.structs.replace(plain, text=text, refusal="", finish="content_filter")


def _calls(case: Case, answer: Answer) -> tuple[tuple[str, str, str], ...]:
    if case.wire == "llamacpp" and answer.calls:
        # It is bound by a grammar to one call, and knows no ids.
        return (("", answer.calls[0].name, answer.calls[0].arguments),)
    ids = _CALL_IDS.get(case.wire, "call_{at}")
    return tuple((ids.format(at=at), call.name, call.arguments) for at, call in enumerate(answer.calls))


def pieces(case: Case) -> str:
    """The text that comes before a stream breaks."""
    texts = case.row.answer(Ask(model=case.model), 0).text
    return "".join(texts[: _sent(case, len(texts))])


def _sent(case: Case, size: int) -> int:
    return 1 if case.row.breaks_early else (size - 1) // 2 + 1


def tokens(case: Case) -> Tokens | None:
    """The ledger's buckets; None where they are estimated, as the provider reported none, or none for an answer."""
    if case.behaviour == "zero-usage":
        return None
    if case.end is End.BROKEN:
        # Gemini counts in every chunk, so a broken stream is counted to its last; one that hangs is billed to its end.
        whole, known = len(case.row.answer(Ask(model=case.model), 0).text), "hang" not in case.behaviour
        counted = NORMAL.share(_sent(case, whole), whole) if known and case.wire == "gemini" else None
    else:
        counted = reported(case.wire, case.behaviour, case.n)
    if counted and case.wire == "gemini":
        # A count of no thoughts is left out, but the total says that there were none.
        return msgspec.structs.replace(counted, reasoning=counted.reasoning or 0)
    # llama.cpp counts one of several choices: the output is that times n, and marked as estimated.
    return _told_apart(case, counted).share(case.n) if counted and case.wire == "llamacpp" else counted


def _told_apart(case: Case, told: Tokens) -> Tokens:
    """llama.cpp shows its thoughts and counts them with the rest: they have their share of the characters."""
    answer = case.row.answer(Ask(model=case.model), 0)
    thought, text = len("".join(answer.reasoning)), len("".join(answer.text))
    reasoning = ceil(told.visible * thought / (thought + text)) if thought else 0
    return msgspec.structs.replace(told, visible=told.visible - reasoning, reasoning=reasoning)


def sources(case: Case) -> tuple[str, str, str]:
    """(usage_source, reasoning_source, cost_source) of the attempt that produced output."""
    told = tokens(case)
    guessed = told is None or (case.wire == "llamacpp" and case.n > 1)
    cost = "provider" if states_cost(case) else "estimated" if guessed else "priced"
    derived = case.wire == "gemini" and told is not None and not told.reasoning
    known = told is not None and told.reasoning is not None
    reasoning = "estimated" if case.wire == "llamacpp" else "derived" if derived else "reported"
    return "estimated" if guessed else "reported", reasoning if known else "unknown", cost


def states_cost(case: Case) -> bool:
    """The provider's own figure counts: for a huge answer it is less than a hundredth of what its tokens cost."""
    return case.wire == "openrouter" and tokens(case) is not None and case.behaviour != "huge"


def cost_nano(case: Case, counted: Tokens) -> int:
    """By hand: one USD per million tokens is 1000 nano-USD a token. OpenRouter says itself what it charges."""
    if states_cost(case):
        return OPENROUTER_COST_NANO
    prompt = counted.uncached * 3_000 + counted.cache_read * 500
    written = counted.cache_write * 5_000 + counted.cache_write_1h * 7_000
    return prompt + written + counted.visible * 11_000 + (counted.reasoning or 0) * 13_000


def served(case: Case) -> str:
    """What the provider calls the model that served."""
    template = _SERVED.get(case.wire) or FLAVOURS[case.wire].served
    return template.format(model=case.model)
