"""What clients send to a chat model: talks that grow, apps that all begin alike, agents with tools, lone questions.

Texts are real prompts and tool schemas where the data folder is there, else made of words. Lengths are lognormal, turns
geometric, sessions Poisson, beginnings drawn by Zipf's law.
"""

import importlib.util
import json
import os
import random
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from typing import Any

from msgspec import Struct

from router.api.parse import parse
from router.types.request import Endpoint, Request

BYTES_PER_TOKEN = 4
"""Of English under today's vocabularies."""
BLOCK = 16 * BYTES_PER_TOKEN
"""Bytes of a block of vLLM's prefix cache: 16 tokens."""
PROMPTS = ("routellm_dev", "zeroeval_dev", "mmlupro")
TOOLS = "bfcl_dev"
"""Sets of the data folder: what people ask, and the functions that agents have."""
_WORDS = ["have", "with", "this", "from", "they", "would", "there", "their", "what", "about", "which", "when", "make"]
Length = tuple[float, float]
"""Median in tokens, and the standard deviation of its logarithm."""


class Shape(Struct, frozen=True):
    """One kind of client."""

    name: str
    share: float
    """Of all sessions."""
    beginnings: int
    """System prompts in use; 0: none."""
    beginning: Length
    turns: float
    """Mean."""
    said: Length
    """By the user, later by tools, in each turn."""
    answer: Length
    pause_s: float
    """Mean, between an answer and the next turn."""
    tools: int = 0
    """Functions in each request."""


SHAPES = (
    # Between LMSYS-Chat-1M (arXiv 2309.11998: 2.0 turns, 70 tokens asked, 215 answered) and WildChat (2405.01470: 2.5).
    Shape("chat", 0.40, 0, (0, 0), 2.5, (60, 1.2), (220, 0.8), 30),
    # Assistants of products; assumed: instructions of one to three pages, half of the traffic with six of forty.
    Shape("app", 0.30, 40, (1_500, 0.5), 2.0, (60, 1.0), (150, 0.7), 25),
    # The tool and agent trace of Mooncake (2407.00079): 8,600 tokens read, 180 written, on average over all steps.
    Shape("agent", 0.10, 8, (1_200, 0.4), 10.0, (350, 1.0), (90, 0.6), 2, tools=12),
    # Documents found for one question: long, new each time, behind a few words that are always the same.
    Shape("rag", 0.20, 5, (60, 0.3), 1.0, (2_500, 0.5), (180, 0.6), 0),
)


class Turn(Struct, frozen=True):
    """`blocks`: what is in the cache when it is over; the first `read` of them are of the prompt."""

    request: Request
    shape: str
    pause_s: float
    """From the end of the turn before."""
    blocks: Sequence[int]
    read: int
    prompt: float
    answer: float
    """Tokens."""


class Session(Struct, frozen=True):
    start_s: float
    turns: Sequence[Turn]


class Corpus:
    """Texts of any length, none twice."""

    def __init__(self, prompts: Sequence[str], functions: Sequence[Any], seed: int) -> None:
        """`functions`: schemas. Without `prompts` texts are made of words."""
        self.real = bool(prompts)
        self.functions = functions or [{"name": f"f{number}", "description": " ".join(_WORDS)} for number in range(50)]
        self.dice = random.Random(seed)  # noqa: S311 - the same traffic each time
        self._prompts = list(prompts)
        self.dice.shuffle(self._prompts)
        self._next = 0

    def text(self, length: Length) -> str:
        """Begins with what no other text begins with."""
        size = self.tokens(length) * BYTES_PER_TOKEN
        parts = [f"{self.dice.getrandbits(32):x}"]
        while sum(map(len, parts)) < size:
            parts.append(self._prompt())
        return " ".join(parts)[:size]

    def tokens(self, length: Length) -> int:
        median, spread = length
        return max(4, int(self.dice.lognormvariate(log(median), spread)))

    def _prompt(self) -> str:
        if not self.real:
            return " ".join(self.dice.choices(_WORDS, k=60))
        self._next = (self._next + 1) % len(self._prompts)
        return self._prompts[self._next]


def corpus(seed: int) -> Corpus:
    place = folder()
    if place is None:
        return Corpus((), (), seed)
    prompts = [prompt for name in PROMPTS for prompt in _column(place, name, "prompt")]
    return Corpus(prompts, [one for text in _column(place, TOOLS, "functions") for one in _functions(text)], seed)


def folder() -> Path | None:
    """Where the data is, if it is, and can be read."""
    place = Path(os.environ.get("LOWPASS_DATA", Path(__file__).parents[3] / "shared" / "data"))
    there = all((place / f"{name}.prompts.parquet").exists() for name in (*PROMPTS, TOOLS))
    return place if there and importlib.util.find_spec("pyarrow") else None


def _column(place: Path, name: str, field: str) -> list[str]:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    values: list[str] = parquet.read_table(place / f"{name}.prompts.parquet", columns=[field])[field].to_pylist()
    return values


def sessions(texts: Corpus, per_s: float, seconds: float) -> list[Session]:
    """That begin within `seconds`."""
    begins = {shape.name: [_Beginning(shape, texts) for _ in range(shape.beginnings)] for shape in SHAPES}
    made, now = list[Session](), 0.0
    while (now := now + texts.dice.expovariate(per_s)) < seconds:
        (shape,) = texts.dice.choices(SHAPES, [shape.share for shape in SHAPES])
        first = _zipf(begins[shape.name], texts.dice)
        made.append(Session(now, tuple(_turns(shape, texts, first))))
    return made


class _Beginning:
    def __init__(self, shape: Shape, texts: Corpus) -> None:
        self.text = texts.text(shape.beginning)
        self.tools = texts.dice.sample(texts.functions, shape.tools)


def _zipf(beginnings: Sequence[_Beginning], dice: random.Random) -> _Beginning | None:
    if not beginnings:
        return None
    (first,) = dice.choices(beginnings, [1 / rank for rank in range(1, len(beginnings) + 1)])
    return first


def _turns(shape: Shape, texts: Corpus, first: _Beginning | None) -> Iterator[Turn]:
    tools = first.tools if first else []
    messages = [{"role": "system", "content": first.text}] if first else []
    read = json.dumps(tools).encode() if tools else b""
    read += b"".join(map(_rendered, messages))
    blocks: list[int] = []
    while True:
        later = bool(blocks)
        messages = [*messages, _said(shape, texts, later)]
        read += _rendered(messages[-1]) + b"<|assistant|>"
        answer = texts.text(shape.answer)
        prompt, read = len(read), read + answer.encode()
        blocks = _chained(blocks, read)
        yield Turn(
            request=_request(messages, tools),
            shape=shape.name,
            pause_s=texts.dice.expovariate(1 / shape.pause_s) if later else 0.0,
            blocks=tuple(blocks),
            read=prompt // BLOCK,
            prompt=prompt / BYTES_PER_TOKEN,
            answer=len(answer) / BYTES_PER_TOKEN,
        )
        if texts.dice.random() < 1 / shape.turns:
            return
        messages.append({"role": "assistant", "content": answer})


def _said(shape: Shape, texts: Corpus, later: bool) -> dict[str, str]:
    text = texts.text(shape.said)
    tool = bool(shape.tools and later)
    return {"role": "tool", "tool_call_id": "call", "content": text} if tool else {"role": "user", "content": text}


def _rendered(message: dict[str, str]) -> bytes:
    """As a template has it."""
    return f"<|{message['role']}|>{message['content']}<|end|>".encode()


def _chained(known: Sequence[int], read: bytes) -> list[int]:
    """A number for each whole block and all before it; `known`: of the beginning."""
    blocks = list(known)
    for start in range(len(blocks) * BLOCK, len(read) - BLOCK + 1, BLOCK):
        blocks.append(hash((blocks[-1] if blocks else 0, read[start : start + BLOCK])))
    return blocks


def _request(messages: Sequence[dict[str, str]], tools: Sequence[Any]) -> Request:
    """As the gateway reads it."""
    body: dict[str, Any] = {"model": "m", "messages": messages}
    if tools:
        body["tools"] = [{"type": "function", "function": function} for function in tools]
    return parse(Endpoint.CHAT, "r", json.dumps(body).encode(), [])


def _functions(text: str) -> Sequence[Any]:
    """Long ones are cut off in the data: none then."""
    try:
        read = json.loads(text or "[]")
    except json.JSONDecodeError:
        return ()
    return read if isinstance(read, list) else [read]
