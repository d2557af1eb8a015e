"""Chat: whole and streamed, with the options that applications use."""

import asyncio
from decimal import Decimal
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from bench.prompts.asking import AUTO, TOKENS, Ask, Said, Wrong, chat, cost_of, expect, said, turns


def simple(*texts: str, **options: Any) -> Ask:
    return lambda client: said(chat(client, *texts, **options))


def system(client: OpenAI) -> Said:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "You are a pirate. Answer in one short sentence."},
        {"role": "user", "content": "How is the sea today?"},
    ]
    return said(client.chat.completions.create(model=AUTO, messages=messages, max_completion_tokens=TOKENS))


def streamed(client: OpenAI) -> Said:
    stream = client.chat.completions.create(
        model=AUTO, messages=turns(["Name three rivers."]), max_completion_tokens=TOKENS, stream=True
    )
    chunks = list(stream)
    expect(all(chunk.choices for chunk in chunks), "no usage chunk, since none was asked for")
    return Said("".join(chunk.choices[0].delta.content or "" for chunk in chunks))


def streamed_with_usage(client: OpenAI) -> Said:
    stream = client.chat.completions.create(
        model=AUTO,
        messages=turns(["Count from one to ten."]),
        max_completion_tokens=TOKENS,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = stream
    expect(last.usage and last.usage.completion_tokens, "the usage in the last chunk")
    words = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return Said(words, cost_of(last.usage))


def two_choices(client: OpenAI) -> Said:
    answer = chat(client, "Suggest a name for a cat.", n=2, temperature=1.2)
    expect(len(answer.choices) == 2, f"two choices, not {len(answer.choices)}")
    return Said(" / ".join(choice.message.content or "" for choice in answer.choices))


def stop(client: OpenAI) -> Said:
    answer = said(chat(client, "Write: one, two, three, four", stop=[","]))
    expect("," not in answer.words, "an answer that ends before the comma")
    return answer


def logprobs(client: OpenAI) -> Said:
    answer = chat(client, "Is water wet? Answer yes or no.", logprobs=True, top_logprobs=2, max_completion_tokens=3)
    given = answer.choices[0].logprobs
    tokens = given.content if given and given.content else []
    expect(tokens and len(tokens[0].top_logprobs) == 2, "the two likeliest tokens at each place")
    return Said(", ".join(f"{token.token!r} {token.logprob:.2f}" for token in tokens))


def pinned(client: OpenAI) -> Said:
    """The first target of the policy, by its own name."""
    target = next(model.id for model in client.models.list() if model.owned_by != "lowpass")
    return said(chat(client, "Name a colour.", model=target))


def route(client: OpenAI) -> Said:
    body = {"model": AUTO, "messages": turns(["Prove that the square root of two is irrational."])}
    decided: Any = client.post("/route", body=body, cast_to=object)
    return Said(f"would ask {decided['chosen']} for about ${decided['considered'][0]['cost_usd']}")


def four_at_once(client: OpenAI) -> Said:
    async def ask() -> list[Said]:
        async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=0) as several:
            asked = [
                several.chat.completions.create(model=AUTO, messages=turns([f"Name a {thing}."]), max_tokens=8)
                for thing in ("bird", "tree", "city", "star")
            ]
            return [said(answer) for answer in await asyncio.gather(*asked)]

    answers = asyncio.run(ask())
    return Said(
        " / ".join(said.words for said in answers), sum((said.cost or Decimal(0) for said in answers), Decimal(0))
    )


def misspelt(client: OpenAI) -> Said:
    try:
        chat(client, "Hello?", model="atuo")
    except openai.NotFoundError as error:
        return Said(error.message)
    raise Wrong("expected a 404 for a model that does not exist")
