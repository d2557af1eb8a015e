"""Tokens of prompts in OpenAI's encodings, counted by the package of the extra `tokens`; off the path of requests."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import msgspec
from msgspec import Raw

from router.types.decision import PromptCount
from router.types.request import Endpoint, Request
from router.types.target import Target

PER_MESSAGE, PER_NAME, REPLY = 3, 1, 3
"""Tokens beside the texts, as OpenAI's own guide counts them (github.com/openai/openai-cookbook, "How to count tokens
with tiktoken"): around each message, beside a name in it, and before the answer."""
SCHEMAS = ("tools", "functions", "response_format")
"""The provider rewrites these in a form that it does not publish; as JSON they are usually a little longer."""
PER_SCHEMA, PER_COMMA = 16, 3
"""What that form may have beyond the JSON, at most: its frame, and around each value of an enumeration."""
PIECE = 65_536
"""Characters that are counted at a time: 3 ms in which no other thread runs."""
_SEAM = re.compile(r"[^\W_](?=[ \n.,。，])")
"""Both encodings end a token after such a letter or digit, whatever stands around it."""
_OWN = ("role", "content", "name")
THREAD = ThreadPoolExecutor(1, "tokens")
"""All counting is done here, one prompt after the other."""


def encoding(target: Target) -> str:
    """The encoding of its model; empty where it is not known, or nothing here can count by it."""
    names, model = target.provider.encodings, target.model.name
    found = next((name for pattern, name in names.items() if fnmatchcase(model, pattern)), "")
    return found if found and find_spec("bpe_openai") else ""


def count(name: str, request: Request, media: int = 0, usual_media: int = 0) -> PromptCount | None:
    """In the encoding `name`; takes 40 ms for a megabyte. `media`, `usual_media`: tokens of images and files,
    at most and as expected. None: not all of it is known here."""
    body = request.body if request.chat is None else request.chat
    if request.unsaid is not None or request.prompts > 1:
        return None
    if request.endpoint in (Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS):
        prompt = msgspec.json.decode(body["prompt" if request.endpoint is Endpoint.COMPLETIONS else "input"])
        (text,) = prompt if isinstance(prompt, list) and len(prompt) == 1 else (prompt,)
        exact = tokens(name, text) if isinstance(text, str) else len(text) if isinstance(text, list) else 1
        return PromptCount(exact, exact, exact)
    exact, others = REPLY, [bytes(body[field]) for field in SCHEMAS if field in body]
    most = PER_SCHEMA * len(others) + media
    for message in msgspec.json.decode(body["messages"], type=list[dict[str, Raw]]):
        exact += PER_MESSAGE + PER_NAME * ("name" in message)
        exact += sum(tokens(name, text) for field in _OWN if field in message for text in _texts(message[field]))
        others += [bytes(raw) for field, raw in message.items() if field not in _OWN]
    beside = sum(tokens(name, raw.decode()) for raw in others)
    most += sum(PER_COMMA * raw.count(b",") for raw in others)
    return PromptCount(exact, exact + beside + usual_media, exact + beside + most)


def tokens(name: str, text: str, piece: int = PIECE) -> int:
    """`piece`: characters that are counted at a time, at least; how many changes nothing."""
    count, start, total = _tokenizer(name).count, 0, 0
    while len(text) - start > piece and (seam := _SEAM.search(text, start + piece)):
        total += count(text[start : seam.end()])
        start = seam.end()
    return int(total + count(text[start:]))


def _texts(raw: Raw) -> Iterator[str]:
    """Of a message's field: a string, or the text parts of its content."""
    value = msgspec.json.decode(raw)
    if isinstance(value, str):
        yield value
    for part in value if isinstance(value, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


@cache
def _tokenizer(name: str) -> Any:
    return _bindings().tokenizer_for_encoding(name)


@cache
def _bindings() -> Any:
    """The compiled part alone: the rest of the package reads three vocabularies at import, and refuses long texts."""
    package = find_spec("bpe_openai")
    spec = PathFinder.find_spec("_bindings", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        raise ImportError("bpe-openai is not installed: pip install 'lowpass-gateway[tokens]'")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
