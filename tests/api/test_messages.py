"""A stream of Anthropic's events says the same as the whole message, however chat's pieces were cut and interleaved."""

import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from router.api.messages import MessagesStream
from router.types.request import Endpoint, Request

REQUEST = Request(
    id="r1", endpoint=Endpoint.MESSAGES, model="auto", body={}, passages=(), prompt_bytes=0, effort="high"
)
WORDS = st.lists(st.text(min_size=1, max_size=5), max_size=4)
CALLS = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers() | st.text(max_size=4), max_size=3), max_size=3)


def chunk(**delta: Any) -> bytes:
    return b"data: " + msgspec.json.encode({"choices": [{"index": 0, "delta": delta}]}) + b"\n\n"


def pieces_of(calls: list[dict[str, Any]], draw: random.Random) -> list[bytes]:
    """The deltas of parallel calls: each in its own order, all of them mixed."""
    lanes = []
    for index, arguments in enumerate(calls):
        text = msgspec.json.encode(arguments).decode()
        cut = draw.randint(0, len(text))
        begun = {"index": index, "id": f"c{index}", "type": "function", "function": {"name": "f", "arguments": ""}}
        rest = [{"index": index, "function": {"arguments": part}} for part in (text[:cut], text[cut:])]
        lanes.append([chunk(tool_calls=[delta]) for delta in (begun, *rest)])
    mixed = []
    while lanes := [lane for lane in lanes if lane]:
        mixed.append(draw.choice(lanes).pop(0))
    return mixed


def gathered(data: bytes) -> list[dict[str, Any]]:
    """The content of the events, read as Anthropic's client does: one block is open at a time, in order."""
    blocks, is_open = list[dict[str, Any]](), False
    for line in data.splitlines():
        event: dict[str, Any] = msgspec.json.decode(line[5:]) if line.startswith(b"data:") else {"type": ""}
        match event["type"]:
            case "content_block_start":
                assert (is_open, event["index"]) == (False, len(blocks))
                blocks.append(event["content_block"] | {"partial_json": ""})
                is_open = True
            case "content_block_delta":
                assert (is_open, event["index"]) == (True, len(blocks) - 1)
                for name, value in event["delta"].items():
                    if name != "type":
                        blocks[-1][name] += value
            case "content_block_stop":
                assert (is_open, event["index"]) == (True, len(blocks) - 1)
                is_open = False
    assert not is_open
    for block in blocks:
        written = block.pop("partial_json")
        block |= {"input": msgspec.json.decode(written or "{}")} if block["type"] == "tool_use" else {}
    return blocks


@given(WORDS, st.sampled_from(["", "s1g"]), WORDS, CALLS, st.randoms(use_true_random=False))
def test_a_stream_says_what_the_whole_answer_says(
    thoughts: list[str], signature: str, texts: list[str], calls: list[dict[str, Any]], draw: random.Random
) -> None:
    thought, text = "".join(thoughts), "".join(texts)
    signed = [{"type": "thinking", "thinking": thought, "signature": signature}] if signature and thought else []
    functions = [
        {"id": f"c{at}", "function": {"name": "f", "arguments": msgspec.json.encode(arguments).decode()}}
        for at, arguments in enumerate(calls)
    ]
    message = {"content": text, "reasoning_content": thought, "thinking_blocks": signed, "tool_calls": functions}
    chat = {"choices": Raw(msgspec.json.encode([{"message": message, "finish_reason": "stop"}]))}
    whole = {name: msgspec.json.decode(raw) for name, raw in MessagesStream(REQUEST).whole(chat, b"{}").items()}
    stream = MessagesStream(REQUEST)
    data = b"".join(stream.feed(chunk(reasoning_content=piece)) for piece in thoughts)
    data += stream.feed(chunk(thinking_blocks=signed)) if signed else b""
    data += b"".join(stream.feed(chunk(content=piece)) for piece in texts)
    data += b"".join(map(stream.feed, pieces_of(calls, draw)))
    data += stream.final(b'{"output_tokens":1}')
    # Calls come in the order in which they began.
    assert sorted(gathered(data), key=lambda block: str(block.get("id", ""))) == whole["content"]
    ending = msgspec.json.decode(data.splitlines()[-5][5:])
    assert ending["delta"] == {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    assert data.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
