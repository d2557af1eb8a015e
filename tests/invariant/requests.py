"""Random requests: what is planted where, under which headers, and what the one who wrote it knows of it."""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from router.types.request import Endpoint
from tests.invariant.oracle import Asked, Rulebook
from tests.invariant.worlds import World, escaped

Place = Callable[[dict[str, Any], str], None]
_ENDPOINTS = (*([Endpoint.CHAT] * 6), Endpoint.RESPONSES, Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS)
_FILLER = ("Please sum up", "the weather in spring is", "as we said,", "1 + 1 = 2 and", "def f(x): return x  #")


@dataclass(frozen=True)
class Written:
    """A request before anybody has looked at it."""

    endpoint: Endpoint
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    caller: str
    session: str
    asked: Asked
    sticks: frozenset[str]
    """Classes that its session has for good."""
    stream: bool
    text: str


def write(world: World, rules: Rulebook, marker: str) -> Written:
    random = world.random
    endpoint, stream = random.choice(_ENDPOINTS), random.random() < 0.5
    planted = {name: random.choice(words) for name, words in world.canaries.items() if random.random() < 0.22}
    caller, session = random.choice(tuple(world.keys)), random.choice(world.sessions)
    how = (_DISGUISES, (str,), (str,))  # As it is, or as it is written to hide it.
    written = {name: random.choice(random.choice(how))(word) for name, word in planted.items()}
    pieces = [marker, *(f"{random.choice(_FILLER)} {word}" for word in written.values())]
    fields, unread = _fields(random, endpoint, pieces), frozenset[str]()
    if endpoint is Endpoint.CHAT and random.random() < 0.1:
        fields["messages"].append({"role": "user", "content": [_IMAGE]})
        unread = frozenset({rules.unscannable["image"]})
    if stream and endpoint is not Endpoint.EMBEDDINGS:
        fields["stream"] = True
    header = random.choice(tuple(rules.classes)) if random.random() < 0.15 else ""
    region = random.choice(("eu", "us")) if random.random() < 0.15 else ""
    given = (("session", session), ("data-class", header), ("region", region))
    headers = tuple((f"x-lowpass-{name}".encode(), value.encode()) for name, value in given if value)
    firm = frozenset({header, world.keys[caller]} - {""}) | unread
    asked = Asked(rules=rules, planted=written, firm=firm, region=region)
    body = escaped({"model": random.choice(("auto", "ordered", "weighted")), **fields}, tuple(planted.values()), random)
    text = " ".join(pieces)
    sticks = frozenset({header} - {""}) | unread
    return Written(endpoint, body, headers, caller, session, asked, sticks, stream, text)


def _fields(random: Random, endpoint: Endpoint, pieces: list[str]) -> dict[str, Any]:
    if endpoint is Endpoint.CHAT:
        return _chat(random, pieces)
    if endpoint is Endpoint.RESPONSES:
        cut = random.randint(0, len(pieces) - 1)
        return {"input": " ".join(pieces[cut:]), "instructions": " ".join(pieces[:cut]) or "Be kind."}
    if endpoint is Endpoint.COMPLETIONS:
        return {"prompt": " ".join(pieces), "max_tokens": 20}
    return {"input": pieces}


def _chat(random: Random, pieces: list[str]) -> dict[str, Any]:
    """The marker is in a message; everything else is anywhere."""
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": pieces[0]}]}
    if random.random() < 0.01:
        fields["messages"].append({"role": "user", "content": _LONG})
    for piece in pieces[1:]:
        random.choice(_PLACES)(fields, piece)
    if random.random() < 0.15:
        name, value = random.choice(_HOSTED)
        fields[name] = [*fields.get(name, ()), *value] if isinstance(value, list) else value
    return fields


def _message(role: str, content: Callable[[str], object] = str, at: int = 1_000) -> Place:
    return lambda fields, piece: fields["messages"].insert(at, {"role": role, "content": content(piece)})


def _exchange(arguments: Callable[[str], object], result: Callable[[str], str]) -> Place:
    """A tool is called, and has answered."""

    def place(fields: dict[str, Any], piece: str) -> None:
        call = {"name": "look", "arguments": json.dumps(arguments(piece))}
        calls = [{"id": "c1", "type": "function", "function": call}]
        answer = {"role": "tool", "tool_call_id": "c1", "content": result(piece)}
        fields["messages"] += [{"role": "assistant", "content": None, "tool_calls": calls}, answer]

    return place


def _tool(fields: dict[str, Any], piece: str) -> None:
    schema = {"type": "object", "properties": {"place": {"type": "string", "description": piece}}}
    function = {"name": f"look_{len(fields.get('tools', ()))}", "description": "Looks.", "parameters": schema}
    fields.setdefault("tools", []).append({"type": "function", "function": function})


def _user(fields: dict[str, Any], piece: str) -> None:
    fields["user"] = f"{fields.get('user', '')} {piece}".strip()


def _format(fields: dict[str, Any], piece: str) -> None:
    first = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}}}
    members = fields.setdefault("response_format", first)["json_schema"]["schema"]["properties"]
    members[f"a{len(members)}"] = {"type": "string", "description": piece}


_LONG = "All work and no play makes a dull text. " * 8_000
"""More than the door scans in the event loop."""
_DISGUISES: tuple[Callable[[str], str], ...] = (
    lambda word: word[:3] + "\u200b" + word[3:],
    lambda word: "".join(chr(ord(letter) + 0xFEE0) for letter in word),  # full width
    lambda word: "".join(f"%{ord(letter):02x}" for letter in word),
    lambda word: b64encode(f"Please keep {word} to yourself.".encode()).decode(),
)
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
_HOSTED: tuple[tuple[str, object], ...] = (
    ("tools", [{"type": "web_search"}]),
    ("tools", [{"type": "mcp", "server_label": "files", "server_url": "https://files.example/mcp"}]),
    ("web_search_options", {}),
    ("models", ["other/model"]),
)
"""What a provider does beside answering."""
_PLACES = (
    *(_message("user"), _message("user"), _message("system", at=0), _tool, _user, _format),
    lambda fields, piece: fields.setdefault("notes", []).append({"of": piece}),  # a field that no API has yet
    _message("user", lambda piece: [{"type": "text", "text": piece}]),
    _exchange(lambda piece: {"q": piece}, lambda piece: "Nothing."),
    _exchange(lambda piece: {}, lambda piece: json.dumps({"found": [piece]})),
)
