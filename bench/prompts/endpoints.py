"""The endpoints beside chat: responses, completions, embeddings."""

from openai import OpenAI

from bench.prompts.asking import AUTO, TOKENS, Said, Wrong, cost_of, expect
from bench.prompts.structured import Ticket


def responses(client: OpenAI) -> Said:
    answer = client.responses.create(model=AUTO, input="Say good morning.", max_output_tokens=TOKENS)
    expect(answer.usage and answer.usage.output_tokens, "its usage")
    return Said(answer.output_text)


def responses_streamed(client: OpenAI) -> Said:
    events = list(client.responses.create(model=AUTO, input="Say good night.", max_output_tokens=TOKENS, stream=True))
    last = events[-1]
    words = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    if last.type in ("response.completed", "response.incomplete"):
        return Said(words, cost_of(last.response.usage))
    raise Wrong(f"expected a regular end of the stream, not {last.type}")


def responses_parsed(client: OpenAI) -> Said:
    answer = client.responses.parse(
        model=AUTO,
        instructions="You sort tickets.",
        input="The printer is on fire!",
        text_format=Ticket,
        temperature=0,
        max_output_tokens=80,
    )
    expect(answer.output_parsed is not None, "a parsed object")
    return Said(repr(answer.output_parsed))


def completion(client: OpenAI) -> Said:
    answer = client.completions.create(model=AUTO, prompt="Once upon a time", max_tokens=TOKENS)
    return Said(answer.choices[0].text)


def completion_streamed(client: OpenAI) -> Said:
    stream = client.completions.create(model=AUTO, prompt="Roses are red,", max_tokens=TOKENS, stream=True)
    return Said("".join(chunk.choices[0].text for chunk in stream if chunk.choices))


def embedding(client: OpenAI) -> Said:
    (vector,) = client.embeddings.create(model=AUTO, input="A river bends.").data
    return Said(f"{len(vector.embedding)} dimensions")


def embeddings(client: OpenAI) -> Said:
    found = client.embeddings.create(model=AUTO, input=["a dog", "a puppy", "the stock market"]).data
    expect([one.index for one in found] == [0, 1, 2], "three vectors in order")
    dog, puppy, market = (one.embedding for one in found)
    return Said(f"dog·puppy {_cosine(dog, puppy):.2f}, dog·market {_cosine(dog, market):.2f}")


def _cosine(left: list[float], right: list[float]) -> float:
    def dot(one: list[float], other: list[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    return float(dot(left, right) / (dot(left, left) * dot(right, right)) ** 0.5)
