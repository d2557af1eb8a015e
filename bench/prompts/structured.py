"""Answers in a form: JSON by schema, and tools."""

from typing import Any, Literal

from openai import OpenAI, pydantic_function_tool
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from pydantic import BaseModel

from bench.prompts.asking import AUTO, TOKENS, Ask, Said, chat, expect, said, turns


class City(BaseModel):
    """A city."""

    name: str
    country: str


class Ticket(BaseModel):
    """A support ticket."""

    urgent: bool
    topic: Literal["account", "hardware", "billing"]


class Weather(BaseModel):
    """Tells the weather in a city."""

    city: str


class Clock(BaseModel):
    """Tells the time in a city."""

    city: str


def parsed(question: str, form: type[BaseModel]) -> Ask:
    def ask(client: OpenAI) -> Said:
        answer = client.chat.completions.parse(
            model=AUTO, messages=turns([question]), response_format=form, max_completion_tokens=80, temperature=0
        )
        found = answer.choices[0].message.parsed
        expect(found is not None, "a parsed object")
        return Said(repr(found))

    return ask


def json_mode(client: OpenAI) -> Said:
    kind = {"type": "json_object"}
    return said(chat(client, "Give me a JSON object with a colour.", response_format=kind, max_completion_tokens=60))


def _tools(*forms: type[BaseModel]) -> list[Any]:
    return [pydantic_function_tool(form) for form in forms]


def _calls(answer: ChatCompletion) -> str:
    calls = answer.choices[0].message.tool_calls or []
    return ", ".join(f"{call.function.name}({call.function.arguments})" for call in calls if call.type == "function")


def tools_auto(client: OpenAI) -> Said:
    answer = chat(client, "What is the weather in Rome?", tools=_tools(Weather), max_completion_tokens=60)
    return Said(_calls(answer)) if _calls(answer) else said(answer)


def tools_required(client: OpenAI) -> Said:
    answer = chat(
        client, "And in Oslo?", tools=_tools(Weather, Clock), tool_choice="required", max_completion_tokens=60
    )
    expect(_calls(answer), "a tool call")
    return Said(_calls(answer))


def tools_parallel(client: OpenAI) -> Said:
    answer = chat(
        client,
        "Weather and time in Lima, please.",
        tools=_tools(Weather, Clock),
        tool_choice="required",
        parallel_tool_calls=True,
        max_completion_tokens=100,
    )
    expect(_calls(answer), "tool calls")
    return Said(_calls(answer))


def tools_streamed(client: OpenAI) -> Said:
    choice: Any = {"type": "function", "function": {"name": "Clock"}}
    with client.chat.completions.stream(
        model=AUTO,
        messages=turns(["What time is it in Cairo?"]),
        tools=_tools(Weather, Clock),
        tool_choice=choice,
        max_completion_tokens=60,
        temperature=0,
    ) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls or []
    expect(calls and isinstance(calls[0].function.parsed_arguments, Clock), "a call of Clock with sound arguments")
    return Said(f"{calls[0].function.name}({calls[0].function.arguments})")


def tool_answered(client: OpenAI) -> Said:
    call: Any = {"id": "call_1", "type": "function", "function": {"name": "Weather", "arguments": '{"city":"Rome"}'}}
    messages: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "What is the weather in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny, 24 degrees."},
    ]
    answer = client.chat.completions.create(
        model=AUTO, messages=messages, tools=_tools(Weather), max_completion_tokens=TOKENS
    )
    return Said(_calls(answer)) if _calls(answer) else said(answer)
