"""The bound on a prompt's tokens against a real tokenizer, and what of a request it hangs on."""

import asyncio
import json
import random
import string
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from msgspec import structs

from local_serving.launch.supervisor import Supervisor
from local_serving.spec import read
from router.api.parse import parse
from router.estimate.estimate import estimate
from router.estimate.forecast import Forecaster
from router.estimate.learn import Learned
from router.estimate.pass_rate import PassRates
from router.estimate.tokens import AUDIO_TOKENS_PER_SECOND, IMAGE_TOKENS, TEMPLATE_TOKENS, prompt
from router.priors import load
from router.types.classification import Classification
from router.types.request import Endpoint, Request
from router.types.target import Prompt, Wire
from router.types.task import Task
from tests.decide.values import REMOTE, target

NEW = Learned()
SPEC = msgspec.structs.replace(read("smollm2"), threads=1)
_CHANCE = random.Random(7)  # noqa: S311 - the same texts each time
PICTURE = "data:image/png;base64," + "A" * 400_000


def drawn(characters: str, count: int) -> str:
    return "".join(_CHANCE.choice(characters) for _ in range(count))


NASTY = {
    "prose": "It was a bright cold day in April, and the clocks of the town were striking thirteen. " * 20,
    "capitals": "THIS IS LOUD AND NOBODY LIKES IT " * 8,
    "random letters": drawn(string.ascii_letters, 300),
    "random small letters": drawn(string.ascii_lowercase, 300),
    "single letters": " ".join(drawn(string.ascii_letters, 150)),
    "base64": drawn(string.ascii_letters + string.digits + "+/", 300),
    "digits": drawn(string.digits, 300),
    "numbers": " ".join(drawn(string.digits, 3) for _ in range(80)),
    "marks": drawn(string.punctuation, 300),
    "emoji": "".join(chr(_CHANCE.randrange(0x1F300, 0x1F6FF)) for _ in range(80)),
    "joined emoji": "👩‍👩‍👧‍👦🏳️‍🌈" * 8,
    "Chinese": "".join(chr(_CHANCE.randrange(0x4E00, 0x9FA5)) for _ in range(100)),
    "Thai": "สวัสดีครับ" * 10,
    "Amharic": "ሰላም ለዓለም " * 12,
    "rare scripts": "".join(chr(_CHANCE.randrange(0x10000, 0x1F000)) for _ in range(60)),
    "mixed": "naïve café — “quoted” §12 ½ 日本語 and 1,234.56 € in prose with words " * 3,
    "controls": "\x01\x02\x03" * 60,
    "newlines": "\n" * 200,
    "code": "for (int i=0;i<n;++i){a[i]^=b[i]<<3;}\n" * 8,
    "schema": json.dumps({"properties": {f"field_{at}": {"type": "string"} for at in range(12)}}),
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Tokens of each text, as a real engine counts them."""
    return uvloop.run(_count(tmp_path_factory.mktemp("engine")))


async def _count(logs: Path) -> dict[str, int]:
    supervisor = Supervisor([SPEC], logs)
    await supervisor.start()
    url = supervisor.served["smollm2"].urls[0].removesuffix("/v1") + "/tokenize"
    found = {name: len(await asyncio.to_thread(_tokenized, url, text)) for name, text in NASTY.items()}
    await supervisor.stop()
    return found


def _tokenized(url: str, text: str) -> list[int]:
    asked = urllib.request.Request(url, json.dumps({"content": text}).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        tokens: list[int] = json.load(answer)["tokens"]
    return tokens


def chat(content: Any, **fields: Any) -> Request:
    body = {"model": "auto", "messages": [{"role": "user", "content": content}], **fields}
    return parse(Endpoint.CHAT, "r", json.dumps(body, ensure_ascii=False).encode(), [])


def bound(asked: Request, wire: Wire = Wire.OPENAI_COMPATIBLE) -> int:
    place = target(context=10**6, provider=msgspec.structs.replace(REMOTE, wire=wire))
    return prompt(place, asked, NEW).bound


def test_the_bound_holds_for_a_real_tokenizer_and_any_script(counted: dict[str, int]) -> None:
    """Without what the bound allows for a chat template: that must not be what saves it."""
    bounds = {name: bound(chat(text)) - TEMPLATE_TOKENS for name, text in NASTY.items()}
    assert {name: (counted[name], bounds[name]) for name in NASTY if counted[name] > bounds[name]} == {}


def test_prose_is_not_held_many_times_over(counted: dict[str, int]) -> None:
    found = estimate(target(context=10**6), chat(NASTY["prose"]), NEW)
    tokens = counted["prose"]
    assert tokens * 0.7 < found.input_tokens < tokens * 1.3
    assert found.input_bound < tokens * 4


def test_the_bound_is_never_more_than_the_context() -> None:
    assert prompt(target(context=1_000), chat("1" * 50_000), NEW).bound == 1_000


def test_tools_and_the_schema_of_the_answer_are_counted() -> None:
    schema = {"type": "object", "properties": {f"field_{at}": {"type": "string"} for at in range(50)}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
    size = len(json.dumps(schema))
    for fields in ({"tools": tools}, {"response_format": form}):
        assert bound(chat("hello", **fields)) > bound(chat("hello")) + size // 2


def parts(*parts: Any) -> list[Any]:
    return [{"type": "text", "text": "What is this?"}, *parts]


def image(url: str = PICTURE) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize("wire", [Wire.ANTHROPIC, Wire.GEMINI])
def test_images_are_counted_not_their_bytes(wire: Wire) -> None:
    plain = bound(chat(parts()), wire)
    for count in (1, 3):
        with_images = bound(chat(parts(*[image()] * count)), wire)
        assert count * IMAGE_TOKENS[wire] <= with_images <= plain + count * IMAGE_TOKENS[wire]
    assert bound(chat(parts(image("https://example.com/a.png"))), wire) >= IMAGE_TOKENS[wire]


def test_images_among_parts_of_other_kinds_are_counted_too() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    assert chat(parts(thought, image(), image())).images == 2


@pytest.mark.parametrize(("form", "seconds"), [("wav", 12), ("mp3", 12)])
def test_sound_is_counted_by_the_longest_that_its_size_allows(form: str, seconds: int) -> None:
    rate = 8_000 if form == "wav" else 1_000
    part = {"type": "input_audio", "input_audio": {"data": "A" * (seconds * rate * 4 // 3), "format": form}}
    asked = chat(parts(part))
    assert asked.audio_seconds == seconds + 1
    assert bound(asked) >= seconds * AUDIO_TOKENS_PER_SECOND


def test_a_document_counts_by_its_size_and_a_linked_one_may_fill_the_context() -> None:
    inline = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + "A" * 4_000}}
    assert 3_000 <= bound(chat(parts(inline))) < 3_500
    stored = {"type": "file", "file": {"file_id": "file-1"}}
    assert bound(chat(parts(stored))) == 10**6


def test_what_a_provider_keeps_of_a_conversation_may_fill_the_context() -> None:
    body = {"model": "auto", "input": "And then?", "previous_response_id": "resp_1"}
    assert bound(parse(Endpoint.RESPONSES, "r", json.dumps(body).encode(), [])) == 10**6


def requests(endpoint: Endpoint, **fields: Any) -> Request:
    return parse(endpoint, "r", json.dumps({"model": "auto", **fields}).encode(), [])


PROMPTS: list[tuple[dict[str, Any], int]] = [
    ({"prompt": "a"}, 1),
    ({"prompt": ["a", "b"], "n": 2}, 4),
    ({"prompt": [1, 2, 3]}, 1),
    ({"prompt": [[1, 2], [3]], "best_of": 5}, 10),
]


@pytest.mark.parametrize(("fields", "choices"), PROMPTS)
def test_completions_are_counted_for_every_prompt(fields: dict[str, Any], choices: int) -> None:
    assert requests(Endpoint.COMPLETIONS, **fields).choices == choices


def test_a_batch_of_texts_may_exceed_the_context_of_one() -> None:
    asked = requests(Endpoint.EMBEDDINGS, input=["1234567890" * 5] * 20)
    assert prompt(target(context=100), asked, NEW).bound > 1_000


def test_marks_for_a_cache_are_seen_wherever_they_stand() -> None:
    marked = [{"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    assert (chat(marked).caches, chat(marked).caches_long) == (True, True)
    assert (chat("Long.").caches, chat("Long.", cache_control={"type": "ephemeral"}).caches) == (False, True)


def test_the_examples_of_a_template_are_counted_and_what_it_says_twice() -> None:
    asked = chat("Good morning, my friend. How are you today?")
    few = "English: Where is the station? French: Where it is. " * 20
    prompted = [
        structs.replace(target(f"t{size}{times}"), prompt=Prompt(template="", bytes=size, dense=size // 5, times=times))
        for size, times in ((0, 1.0), (len(few), 1.0), (len(few), 2.0))
    ]
    bare, once, twice = (prompt(one, asked, Learned()) for one in prompted)
    plain = prompt(target("t"), asked, Learned())
    assert (bare.tokens, bare.bound) == (plain.tokens, plain.bound)
    assert once.tokens - bare.tokens > len(few) / 6
    assert once.bound - bare.bound > len(few) / 2
    assert twice.bound > once.bound
    forecaster = Forecaster(prompted[:2], Learned(), PassRates(prompted[:2], load()))
    seen = Classification(data_class="internal", difficulty=0.5, task=Task.TRANSLATION)
    cost = forecaster.forecast(prompted[:2], asked, seen, 0).cost
    assert cost[1] > cost[0]
