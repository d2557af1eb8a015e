"""Anchors → requests as a client sends them, with what is known of each.

Pasted material and long system prompts are put together from `SPLIT.materials.yaml`, the same ones for the same anchor.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import yaml

from router.api.parse import parse
from router.types.request import Endpoint, Request

FOLDER = Path(__file__).parent
THINKING = ("none", "some", "much")
CHARACTERS_PER_TOKEN = 4
LONG_SYSTEM = 3_000
"""Tokens of a system prompt that is given by its domain."""

UPON = ("translation", "summary", "extraction", "classification", "creative", "code")
"""Tasks that are done with a text; those behind the fourth only with one in quotes, as far as a colon tells."""
LONGEST_TASK, LEAST_TEXT = 240, 20
"""Characters of an instruction that stands by itself, and of a text."""


class _Loader(yaml.CSafeLoader):
    """In which on, off, yes and no are words, as in YAML 1.2."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


class Anchor(NamedTuple):
    tier: int
    task: str
    lang: str
    low: int
    """Visible output tokens: 10th percentile of good answers …"""
    high: int
    """… and the 90th."""
    thinking: int
    """Index into `THINKING`."""
    shape: str
    user: str
    """What the user says last, without material."""
    body: dict[str, Any]
    """A Chat Completions request."""

    def request(self) -> Request:
        return parse(Endpoint.CHAT, "anchor", msgspec.json.encode(self.body), ())


def load(split: str) -> list[Anchor]:
    """`split`: train, test or contrasts. ValueError names the file and the anchor that is not one."""
    return list(_named(split).values())


def _named(split: str) -> dict[str, Anchor]:
    """By the file's name and the place in it, which translations go by."""
    pool = _pool("test" if split == "test" else "train")
    anchors: dict[str, Anchor] = {}
    for path in sorted((FOLDER / split).glob("*.yaml")):
        for number, row in enumerate(yaml.load(path.read_text(), Loader=_Loader)):
            try:
                anchors[f"{path.stem}:{number}"] = _anchor(row, pool, Random(f"{path.stem} {number}"))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path.name}, anchor {number + 1}: {type(error).__name__} {error}") from error
    return anchors


def translated() -> list[tuple[int, Anchor]]:
    """Plain anchors to fit on, by their place, in other languages: as hard, of the same task and as long an answer."""
    anchors, copies = _named("train"), list[tuple[int, Anchor]]()
    place = {name: at for at, name in enumerate(anchors)}
    for path in sorted((FOLDER / "translations").glob("*.yaml")):
        for name, texts in yaml.load(path.read_text(), Loader=_Loader).items():
            for lang, text in texts.items():
                body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
                copies.append((place[name], anchors[name]._replace(lang=lang, body=body)))
    return copies


def surrounded(anchors: Sequence[Anchor], share: float) -> list[tuple[int, Anchor]]:
    """Some of them, by their place, once more: what is asked stays as easy or as hard as it was. Those without a system
    prompt with instructions of an application before them and often with tools that they don't need; plain ones after
    turns of another conversation, or with tools that they don't need; any with courtesies around them."""
    pool, chance = _pool("train"), Random(0)
    copies = list[tuple[int, Anchor]]()
    turns = [messages[:2] for anchor in anchors if (messages := anchor.body["messages"])[1:] and _is_turn(messages)]
    tools = [anchor.body["tools"] for anchor in anchors if "tools" in anchor.body]
    for at, anchor in enumerate(anchors):
        messages = anchor.body["messages"]
        if anchor.shape == "plain" and chance.random() < share:
            copies.append((at, anchor._replace(body=anchor.body | {"messages": [*chance.choice(turns), *messages]})))
        if messages[-1]["role"] == "user" and chance.random() < share / 2:
            before, behind = (chance.choice(pool["courtesies"][place]) for place in ("before", "behind"))
            asked = messages[-1] | {"content": f"{before}{messages[-1]['content']}{behind}"}
            copies.append((at, anchor._replace(body=anchor.body | {"messages": [*messages[:-1], asked]})))
        if "tools" not in anchor.body and chance.random() < share:
            copies.append((at, anchor._replace(body=anchor.body | {"tools": _several(tools, chance)})))
        if messages[0]["role"] == "system" or chance.random() >= share:
            continue
        texts, length = chance.sample(pool["around"], chance.choice((1, 1, 2, 4))), chance.choice((1, 2, 8, 60, 200))
        domains = [name for name in pool["system"] if name != "common"]
        long = chance.random() < 0.4
        text = _system(chance.choice(domains), pool, chance) if long else chance.choice(" \n").join(texts * length)
        body = anchor.body | {"messages": [{"role": "system", "content": text[: 4 * LONG_SYSTEM]}, *messages]}
        if "tools" not in body and chance.random() < 0.3:
            body["tools"] = _several(tools, chance)
        copies.append((at, anchor._replace(body=body)))
    return copies


def within_agents(anchors: Sequence[Anchor], share: float) -> list[tuple[int, Anchor]]:
    """Some plain ones, by their place, once more as what a user says next to an agent: behind its long instructions,
    with its tools, after a call that it made for something else and its report of that."""
    pool, chance = _pool("train"), Random(0)
    calls = [anchor.body for anchor in anchors if anchor.shape == "tool_result"]
    copies = list[tuple[int, Anchor]]()
    for at, anchor in enumerate(anchors):
        if anchor.shape != "plain" or chance.random() >= share:
            continue
        called = chance.choice(calls)
        turns = [message for message in called["messages"] if message["role"] != "system"]
        report = {"role": "assistant", "content": chance.choice(pool["reports"])}
        system = {
            "role": "system",
            "content": _system(chance.choice(("coding", "support", "travel", "bank")), pool, chance),
        }
        body = {"messages": [system, *turns, report, *anchor.body["messages"]], "tools": called["tools"]}
        copies.append((at, anchor._replace(body=anchor.body | body)))
    return copies


def framed(anchors: Sequence[Anchor]) -> list[tuple[int, Anchor]]:
    """Those with material or with examples, by their place, once more as programs send them: a question with its
    documents in JSON; examples and what is asked in one message, with a sign between what is given and what it becomes.
    """
    frames, chance = _pool("train")["frames"], Random(0)
    copies = list[tuple[int, Anchor]]()
    for at, anchor in enumerate(anchors):
        *before, last = anchor.body["messages"]
        first = int(bool(before) and before[0]["role"] == "system")
        if anchor.shape == "fewshot":
            texts, sign = [message["content"] for message in (*before[first:], last)], chance.choice(frames["signs"])
            pairs = zip(texts[::2], [*texts[1::2], ""], strict=True)
            text = "\n".join(f"{given}{sign}{answer}".rstrip(" ") for given, answer in pairs)
        elif anchor.shape == "paste":
            documents = last["content"].removeprefix(anchor.user).removesuffix(anchor.user).strip().split("\n\n")
            fields = [*zip(chance.choice(frames["fields"]), (anchor.user, documents), strict=True)]
            chance.shuffle(fields)
            text = json.dumps(dict(fields), ensure_ascii=chance.random() < 0.3, indent=chance.choice((None, None, 2)))
        else:
            continue
        body = anchor.body | {"messages": [*before[:first], last | {"content": text}]}
        copies.append((at, anchor._replace(body=body)))
    return copies


def instructed(anchors: Sequence[Anchor]) -> list[tuple[int, Anchor]]:
    """Those that say first what is to be done with a text, by their place, once more as applications send them: what is
    to be done is the system prompt, and the user's message is the bare text."""
    copies = list[tuple[int, Anchor]]()
    for at, anchor in enumerate(anchors):
        last = anchor.body["messages"][-1]
        if len(anchor.body["messages"]) > 1 or anchor.shape not in ("plain", "paste"):
            continue
        task, text = _apart(anchor, last["content"])
        if task and text:
            messages = [{"role": "system", "content": task}, last | {"content": text}]
            copies.append((at, anchor._replace(shape="system", body=anchor.body | {"messages": messages})))
    return copies


def _apart(anchor: Anchor, content: str) -> tuple[str, str]:
    """What is to be done, and the text that it is done with; "" where the two can't be told apart."""
    if anchor.shape == "paste":
        return anchor.user, content.removeprefix(anchor.user).removesuffix(anchor.user).strip()
    if anchor.task not in UPON:
        return "", ""
    parts = (content.partition(mark) for mark in ("\n", "：", ": "))
    task, _, text = next((part for part in parts if part[1]), ("", "", ""))
    text = text.strip()
    quoted = text[:1] + text[-1:] in ('""', "''", "“”", "«»", "„“", "「」")
    # What follows a colon is part of the instruction where something is to be made up, unless it is quoted.
    if not 8 <= len(task) <= LONGEST_TASK or len(text) < LEAST_TEXT or not (quoted or anchor.task in UPON[:4]):
        return "", ""
    return task.strip(), text[1:-1].strip() if quoted else text


def _several(tools: Sequence[list[Any]], chance: Random) -> list[Any]:
    """All that one, two or six of the requests offer."""
    return [tool for offered in chance.sample(tools, chance.choice((1, 1, 2, 6))) for tool in offered]


def _is_turn(messages: Sequence[Mapping[str, Any]]) -> bool:
    return messages[0]["role"] == "user" and messages[1]["role"] == "assistant" and bool(messages[1]["content"])


def _pool(split: str) -> dict[str, Any]:
    materials: dict[str, Any] = yaml.load((FOLDER / f"{split}.materials.yaml").read_text(), Loader=_Loader)
    return materials


def _anchor(row: Mapping[str, Any], pool: Mapping[str, Any], chance: Random) -> Anchor:
    low, high = row["out"]
    if not (0 <= row["tier"] <= 5 and 1 <= low <= high <= 32_000):
        raise ValueError(f"tier {row['tier']}, out {row['out']}")
    thinking = THINKING.index(row["think"])
    shape, user, body = _shape(row), str(row.get("user", "")), _body(row, pool, chance)
    return Anchor(row["tier"], row["task"], row["lang"], low, high, thinking, shape, user, body)


def _shape(row: Mapping[str, Any]) -> str:
    by_field = (("called", "tool_result"), ("paste", "paste"), ("shots", "fewshot"), ("schema", "json"))
    known = [shape for field, shape in by_field if row.get(field)]
    return str(row.get("shape") or (known or ["followup" if row.get("turns") else "plain"])[0])


def _body(row: Mapping[str, Any], pool: Mapping[str, Any], chance: Random) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if system := row.get("system"):
        text = system if isinstance(system, str) else _system(system["long"], pool, chance)
        messages.append({"role": "system", "content": text})
    for user, assistant in [*row.get("shots", ()), *row.get("turns", ())]:
        messages += [{"role": "user", "content": str(user)}, {"role": "assistant", "content": str(assistant)}]
    if (user := row.get("user")) is not None:
        messages.append({"role": "user", "content": _with_paste(str(user), row, pool, chance)})
    body: dict[str, Any] = {"model": "auto", "messages": messages}
    if called := row.get("called"):
        name, arguments, result = called
        function = {"name": name, "arguments": msgspec.json.encode(arguments).decode()}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": str(result)})
    if names := [*row.get("tools", ()), *([called[0]] if called and called[0] not in row.get("tools", ()) else ())]:
        body["tools"] = [_tool(name, pool) for name in names]
    if fields := row.get("schema"):
        properties = {str(field): {"type": "string"} for field in fields}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return body


def _tool(name: str, pool: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
    description = pool.get("tools", {}).get(name, f"{name.replace('_', ' ').capitalize()}.")
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _with_paste(user: str, row: Mapping[str, Any], pool: Mapping[str, Any], chance: Random) -> str:
    if not (kind := row.get("paste")):
        return user
    text = material(kind, int(row.get("size", 800)), pool, chance)
    text = f"```\n{text}\n```" if kind in ("code", "diff", "log", "json") and chance.random() < 0.5 else text
    return f"{text}\n\n{user}" if row.get("before") else f"{user}\n\n{text}"


def _system(domain: str, pool: Mapping[str, Any], chance: Random) -> str:
    parts = pool["system"]
    own, common = list(parts.get(domain) or parts["support"]), list(parts["common"])
    chance.shuffle(common)
    return _joined([own[0], *common[:12], *own[1:], *common[12:]], LONG_SYSTEM, "\n\n")


def material(kind: str, size: int, pool: Mapping[str, Any], chance: Random) -> str:
    """About `size` tokens of it."""
    if kind == "log":
        lines = [_log_line(pool["log"], number, chance) for number in range(size // 25 + 1)]
        return _joined(lines, size, "\n")
    if kind == "csv":
        return _csv(chance.choice(pool["csv"]["tables"]), size, chance)
    parts = list(pool[kind])
    chance.shuffle(parts)
    while sum(map(len, parts)) < size * CHARACTERS_PER_TOKEN:
        parts += parts
    return _joined(list(map(str, parts)), size, "\n" if kind in ("transcript", "json") else "\n\n")


def _joined(parts: list[str], size: int, between: str) -> str:
    """As many of the parts, from the first on, as make the size."""
    length, taken = 0, list[str]()
    for part in parts:
        if taken and length + len(part) > size * CHARACTERS_PER_TOKEN * 1.1:
            break
        taken.append(part)
        length += len(part)
    return between.join(taken)


def _log_line(pool: Mapping[str, Any], number: int, chance: Random) -> str:
    level = chance.choices(("info", "warn", "error"), (80, 14, 6))[0]
    message = str(chance.choice(pool[level]))
    values = {
        "{n}": str(chance.randrange(1, 900)),
        "{ms}": str(chance.randrange(1, 4_000)),
        "{id}": f"{chance.randrange(16**8):08x}",
        "{ip}": f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(256)}",
    }
    for name, value in values.items():
        message = message.replace(name, value)
    clock = f"2026-03-{1 + number // 900 % 28:02}T{number // 60 % 24:02}:{number % 60:02}:{chance.randrange(60):02}Z"
    return f"{clock} {level.upper():5} {chance.choice(pool['services'])} {message}"


def _csv(table: Mapping[str, Any], size: int, chance: Random) -> str:
    lines = [",".join(map(str, table["header"]))]
    while sum(map(len, lines)) < size * CHARACTERS_PER_TOKEN:
        lines.append(",".join(_cell(column, chance) for column in table["values"]))
    return "\n".join(lines)


def _cell(column: Any, chance: Random) -> str:
    if isinstance(column, list):
        return str(chance.choice(column))
    if column == "date":
        return f"2026-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
    return str(chance.randrange(1, 5_000)) if column == "int" else f"{chance.uniform(0, 900):.2f}"
