"""The bound on a prompt's tokens against a real tokenizer, and what of a request it hangs on."""

import itertools
import json
import random
import string
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.api.parse import parse
from router.classify.embedding import count_pieces
from router.estimate.forecast import Forecaster, ForecastInput
from router.estimate.learn import InputSize, Line, TargetStats
from router.estimate.pass_rate import PassRateModel
from router.estimate.tokens import AUDIO_TOKENS_PER_SECOND, TEMPLATE_TOKENS, count_prompt, count_text, prompts
from router.types.request import Classification, Endpoint, Request
from router.types.target import Prompt, Target, Task, Wire
from tests.decide.values import REMOTE, estimate, target
from tests.tables import data, each_row

NEW = TargetStats()
CHANCE = random.Random(7)  # noqa: S311 - the same texts each time
LETTERS, SMALL, DIGITS = string.ascii_letters, string.ascii_lowercase, string.digits
PICTURE = "data:image/png;base64," + "A" * 400_000


def drawn(characters: str, count: int) -> str:
    return "".join(CHANCE.choice(characters) for _ in range(count))


def characters(first: int, last: int, count: int) -> str:
    return "".join(chr(CHANCE.randrange(first, last)) for _ in range(count))


NASTY = {name: text * times for name, (text, times) in data(__file__, "nasty.yaml").items()} | {
    "random letters": drawn(LETTERS, 300),
    "random small letters": drawn(SMALL, 300),
    "single letters": " ".join(drawn(LETTERS, 150)),
    "base64": drawn(LETTERS + DIGITS + "+/", 300),
    "digits": drawn(DIGITS, 300),
    "numbers": " ".join(drawn(DIGITS, 3) for _ in range(80)),
    "marks": drawn(string.punctuation, 300),
    "emoji": characters(0x1F300, 0x1F6FF, 80),
    "Chinese": characters(0x4E00, 0x9FA5, 100),
    "rare scripts": characters(0x10000, 0x1F000, 60),
    "schema": json.dumps({"properties": {f"field_{at}": {"type": "string"} for at in range(12)}}),
}


def chat(content: Any, **fields: Any) -> Request:
    return asking(Endpoint.CHAT, messages=[{"role": "user", "content": content}], **fields)


def asking(endpoint: Endpoint, **fields: Any) -> Request:
    return parse(endpoint, "r", json.dumps({"model": "auto", **fields}, ensure_ascii=False).encode(), [])


def bound(asked: Request, wire: Wire = Wire.OPENAI_COMPATIBLE, context: int = 10**6) -> int:
    return estimate(target(context=context, provider=structs.replace(REMOTE, wire=wire)), asked, NEW).input_bound


@given(st.text() | st.text("aB's \n\t,.12_的。é"), st.integers(0, 9))
def test_no_text_has_more_tokens_than_its_bound_and_pieces_have_as_many_as_the_whole(text: str, piece: int) -> None:
    for name, whole in itertools.product(("o200k_base", "cl100k_base"), (text, *NASTY.values())):
        exact = count_text(name, whole)
        assert count_text(name, whole, piece) == exact, whole
        assert exact <= bound(chat(whole)) - TEMPLATE_TOKENS, whole


def test_messages_are_counted_as_openai_s_api_has_counted_them() -> None:
    published = data(__file__, "published.yaml")
    names = ("role", "content", "name")
    asked = asking(Endpoint.CHAT, messages=[dict(zip(names, row, strict=False)) for row in published["messages"]])
    for name, exact in published["tokens"].items():
        assert count_prompt(name, asked, 0) == (exact, exact, exact)
    for said, exact in (("Hello there", 2), (["Hello there"], 2), ([1, 2, 3], 3), ([[1, 2]], 2)):
        assert count_prompt("o200k_base", asking(Endpoint.COMPLETIONS, prompt=said), 0) == (exact,) * 3
    assert count_prompt("o200k_base", asking(Endpoint.COMPLETIONS, prompt=["a", "b"]), 0) is None


def test_tools_and_the_schema_of_the_answer_are_counted_and_marks_for_a_cache_seen_wherever_they_stand() -> None:
    schema = {"type": "object", "properties": {f"field_{at}": {"type": "string"} for at in range(50)}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
    for asked in (chat("hello", tools=tools), chat("hello", response_format=form)):
        assert bound(asked) > bound(chat("hello")) + len(json.dumps(schema)) // 2
    marked = chat([{"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}])
    assert (marked.caches, marked.caches_long) == (True, True)
    assert (chat("Long.").caches, chat("Long.", cache_control={"type": "ephemeral"}).caches) == (False, True)


def parts(*parts: Any) -> Request:
    return chat([{"type": "text", "text": "What is this?"}, *parts])


def image(url: str = PICTURE, **source: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **source}}


@each_row(
    "wire, model, most, usual, low",
    [
        (Wire.ANTHROPIC, "claude-opus-5-5", 5_000, 1_400, 1_400),
        (Wire.GEMINI, "gemini-3-pro", 2_600, 1_120, 1_120),
        (Wire.OPENAI_COMPATIBLE, "gpt-4o-2024-11-20", 1_445, 765, 85),
        (Wire.OPENAI_COMPATIBLE, "gpt-4o-mini", 48_200, 25_501, 2_833),
        (Wire.LITELLM, "openai/gpt-5-mini", 2_489, 1_659, 1_659),
        (Wire.OPENAI_COMPATIBLE, "gpt-5.4-mini", 16_384, 1_100, 1_100),
    ],
)
def test_images_count_by_their_models_rule(wire: Wire, model: str, most: int, usual: int, low: int) -> None:
    """A model of which no rule is known, such as a newer one, has the highest bound."""
    place = target(context=10**6, provider=structs.replace(REMOTE, wire=wire))
    place = structs.replace(place, model=structs.replace(place.model, name=model))
    plain, *some = (estimate(place, parts(*[image()] * count), NEW) for count in (0, 1, 3))
    for count, known in zip((1, 3), some, strict=True):
        assert count * most <= known.input_bound <= plain.input_bound + count * most
        assert 0 < known.input_tokens - count * usual <= plain.input_tokens
    assert estimate(place, parts(image("https://example.com/a.png")), NEW).input_bound >= most
    cheaper = estimate(place, parts(image(), image(detail="low")), NEW)
    assert 0 < cheaper.input_tokens - usual - low <= plain.input_tokens
    assert parts({"type": "thinking", "thinking": "Hm.", "signature": "x"}, image(), image()).images == 2


@each_row("form, rate", [("wav", 8_000), ("mp3", 1_000)])
def test_sound_is_counted_by_the_longest_that_its_size_allows(form: str, rate: int) -> None:
    asked = parts({"type": "input_audio", "input_audio": {"data": "A" * (12 * rate * 4 // 3), "format": form}})
    assert asked.audio_seconds == 13
    assert bound(asked) >= 12 * AUDIO_TOKENS_PER_SECOND


def test_a_document_counts_by_its_size_and_only_what_the_provider_keeps_or_a_batch_fills_the_context() -> None:
    inline = {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + "A" * 4_000}
    assert 3_000 <= bound(parts({"type": "file", "file": inline})) < 3_500
    assert bound(parts({"type": "file", "file": {"file_id": "file-1"}})) == 10**6
    assert bound(asking(Endpoint.RESPONSES, input="And then?", previous_response_id="resp_1")) == 10**6
    assert bound(chat("1" * 50_000), context=1_000) == 1_000
    assert bound(asking(Endpoint.EMBEDDINGS, input=["1234567890" * 5] * 20), context=100) > 1_000


def test_completions_are_counted_for_every_prompt() -> None:
    rows: list[tuple[int, dict[str, Any]]] = [(1, {"prompt": "a"}), (4, {"prompt": ["a", "b"], "n": 2})]
    rows += [(1, {"prompt": [1, 2, 3]}), (10, {"prompt": [[1, 2], [3]], "best_of": 5})]
    assert [asking(Endpoint.COMPLETIONS, **fields).choices for _, fields in rows] == [choices for choices, _ in rows]


def test_the_examples_of_a_template_are_counted_and_what_it_says_twice() -> None:
    asked, size = chat("Good morning, my friend. How are you today?"), 1_000

    def prompted(name: str, size: int, times: float = 1.0) -> Target:
        template = Prompt(template="", bytes=size, dense=size // 5, times=times)
        return structs.replace(target(name), prompt=template)

    places = (prompted("bare", 0), prompted("once", size), prompted("twice", size, 2.0))
    usual, bare, once, twice = (estimate(place, asked, NEW) for place in (target(), *places))
    assert (bare.input_tokens, bare.input_bound) == (usual.input_tokens, usual.input_bound)
    assert once.input_tokens - bare.input_tokens > size / 6
    assert once.input_bound - bare.input_bound > size / 2
    assert twice.input_bound > once.input_bound
    seen = Classification(data_class="internal", difficulty=0.5, task=Task.TRANSLATION)
    cost = Forecaster(places, NEW, PassRateModel(places)).forecast(places[:2], ForecastInput(asked, seen)).cost
    assert cost[1] > cost[0]


FOREIGN = {
    "Zulu": "bonke abantu bazalwa bekhululekile belingana ngesithunzi nangamalungelo ",
    "Swahili": "watu wote wamezaliwa huru hadhi na haki zao ni sawa wote wamejaliwa akili ",
    "Polish": "komitet uzgodnił że wniosek powinien zostać zmieniony przed następnym posiedzeniem ",
    "Turkish": "komite teklifin bir sonraki toplantidan once gozden gecirilmesi gerektigi konusunda anlasti ",
    "bases": "acgtacgtta gattacagat ccgatagcta ttagcatgca ",
    "numerals": "mcmlxxxiv mdclxvi cdxliv xlii lxxxviii ",
    "short words": "qx zjk vw pyq kz jxq wv ",
}


def test_what_was_learned_of_english_is_no_bound_on_texts_in_other_languages() -> None:
    learned = InputSize(Line(0.7, 0.0), 700, 1.0)
    for text in FOREIGN.values():
        asked = chat(text * 60)
        pieces = partial(count_pieces, asked.passages)
        (size,) = prompts(asked, [(target(context=10**6), learned, 1.0)], pieces=pieces)
        for name in ("o200k_base", "cl100k_base"):
            assert count_text(name, text * 60) <= size.bound <= bound(asked), text
