"""Tools for engines that ignore them: what the engine is asked for, and the calls that its JSON becomes."""

from typing import Any

import msgspec
import pytest

from router.errors import ClientError
from router.types.target import Quirks
from tests.adapters.calls import ADAPTER, HI, USAGE, answer, answered, call, chunk, events, message, sent, sse
from tests.tables import data, each_row

GRAMMAR = Quirks(grammar_tools=True)
CITY = {"type": "object", "properties": {"city": {"$ref": "#/$defs/City"}}, "$defs": {"City": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Weather now.", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = {**HI, "tools": [WEATHER, CLOCK]}
CALL = '{"name": "weather", "arguments": {"city": "Paris"}}'


def asked(**body: Any) -> Any:
    return sent(call({**TOOLS, **body}, quirks=GRAMMAR))


def schema(**body: Any) -> Any:
    form = asked(**body)["response_format"]
    assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
    return form["json_schema"]["schema"]


def short(properties: Any) -> str:
    if "answer" in properties:
        return f"answer:{properties['answer']['type']}"
    if "calls" in properties:
        items = properties["calls"]["items"]["anyOf"]
        return f"1..{properties['calls']['maxItems']} of " + ",".join(short(item["properties"]) for item in items)
    return str(properties["name"]["const"])


@each_row("body, admitted", data(__file__, "grammar_admits.yaml"))
def test_what_the_schema_admits(body: dict[str, Any], admitted: list[str]) -> None:
    assert [short(option["properties"]) for option in schema(**body)["anyOf"]] == admitted
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(asked(**body))


def test_references_inside_parameters_are_turned_to_their_new_place() -> None:
    form = schema()
    assert form["anyOf"][0]["properties"]["arguments"] == {"$ref": "#/$defs/tool_0"}
    assert form["$defs"]["tool_0"]["properties"]["city"] == {"$ref": "#/$defs/tool_0/$defs/City"}
    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert form["$defs"]["tool_1"] == empty


def test_one_system_message_tells_the_model() -> None:
    system, user = asked()["messages"]
    assert (system["role"], user) == ("system", HI["messages"][0])
    assert "weather: Weather now." in system["content"]
    assert '"answer"' in system["content"]
    assert '"answer"' not in asked(tool_choice="required")["messages"][0]["content"]
    assert "weather" not in asked(tool_choice=CLOCK)["messages"][0]["content"]
    first, *rest = asked(messages=[{"role": "system", "content": "Be kind."}, *HI["messages"]])["messages"]
    assert (first["content"].startswith("Be kind.\n\nYou can call"), rest) == (True, HI["messages"])


@each_row("body", [{"tool_choice": "none"}, {"tools": []}])
def test_without_tools_to_call_nothing_is_asked_for(body: dict[str, Any]) -> None:
    assert asked(**body) == {"model": "served-1", **HI}
    reply = ADAPTER.decode(call({**TOOLS, **body}, quirks=GRAMMAR), answer({"content": CALL}))
    assert answered(reply.body)["choices"][0]["message"]["content"] == CALL


@each_row("tools", [{}, {"tools": [WEATHER]}])
def test_earlier_calls_and_results_become_plain_turns(tools: dict[str, Any]) -> None:
    rome = {"type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    made = [{"id": f"call_{at}", **rome} for at in range(2)]
    history = [
        *HI["messages"],
        {"role": "assistant", "content": None, "tool_calls": made},
        {"role": "tool", "tool_call_id": "call_0", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "warm"}]},
        {"role": "assistant", "content": "Let me see.", "tool_calls": made[:1]},
    ]
    plain = '{"name":"weather","arguments":{"city":"Rome"}}'
    turns = sent(call({**tools, "messages": history}, quirks=GRAMMAR))["messages"]
    assert turns[-4:] == [
        HI["messages"][0],
        {"role": "assistant", "content": f'{{"calls":[{plain},{plain}]}}'},
        {"role": "user", "content": "Result of weather: sunny\nResult of weather: warm"},
        {"role": "assistant", "content": f"Let me see.\n{plain}"},
    ]


def calls_of(turn: dict[str, Any]) -> list[list[str]]:
    made = turn.get("tool_calls", [])
    assert all(each["id"].startswith("call_") and each["type"] == "function" for each in made)
    assert len({each["id"] for each in made}) == len(made)
    return [[each["function"]["name"], each["function"]["arguments"]] for each in made]


@each_row("role_first", [True, False])
@each_row("written, stopped, content, calls, finish, answers", data(__file__, "grammar.yaml"))
def test_what_was_written_becomes_a_turn_whole_and_streamed(
    written: str, stopped: str, content: str | None, calls: list[Any], finish: str, answers: bool, role_first: bool
) -> None:
    reply = ADAPTER.decode(call(TOOLS, quirks=GRAMMAR), answer({"content": written}, stopped))
    choice = answered(reply.body)["choices"][0]
    assert (choice["message"]["content"], calls_of(choice["message"])) == (content, calls)
    assert (choice["finish_reason"], reply.finish_reason, reply.has_answer) == (finish, finish, answers)

    role = [chunk({"role": "assistant", "content": None})] if role_first else []
    decoder = ADAPTER.stream(call(TOOLS, quirks=GRAMMAR, stream=True, stream_usage=True))
    pieces = [chunk({"content": piece}) for piece in written]
    data = sse(*role, *pieces, chunk({}, stopped), chunk(usage=USAGE), "[DONE]")
    *chunks, last, _ = events(decoder.feed(data) + decoder.final(b'{"cost":1}'))
    turn = message([*chunks, last])
    assert (turn.get("role"), turn.get("content"), calls_of(turn)) == ("assistant", content, calls)
    assert chunks[-1]["choices"][0]["finish_reason"] == finish
    assert [event["choices"][0]["delta"].get("role") for event in chunks].count("assistant") == 1
    assert all(event["model"] == "auto" and event["id"] == "c-1" for event in [*chunks, last])
    assert last["usage"] == {"cost": 1}
    assert (decoder.finish_reason, decoder.has_answer, decoder.finished) == (finish, answers, True)
    assert decoder.usage is not None


def test_each_choice_has_its_own_turn_and_a_cut_stream_gives_no_half_call() -> None:
    pieces = [
        chunk(choices=[{"index": at, "delta": {"content": written}, "finish_reason": finish}])
        for written, finish in (("{", None), ('"answer":"ab"}', None), ("", "stop"))
        for at in (0, 1)
    ]
    decoder = ADAPTER.stream(call(TOOLS, quirks=GRAMMAR, stream=True, n=2))
    got = events(decoder.feed(sse(*pieces, "[DONE]")))
    assert [message(got, at)["content"] for at in (0, 1)] == ["ab", "ab"]
    decoder = ADAPTER.stream(call(TOOLS, quirks=GRAMMAR, stream=True))
    assert (decoder.feed(sse(chunk({"content": CALL[:20]}))), decoder.finished) == (b"", False)


@each_row("body, param", data(__file__, "tool_mistakes.yaml"))
def test_tools_that_cannot_be_read_are_the_clients_mistake(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ClientError) as caught:
        asked(**body)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_engines_with_tools_of_their_own_get_them() -> None:
    assert sent(call(TOOLS)) == {"model": "served-1", **TOOLS}
    assert msgspec.json.decode(ADAPTER.encode(call(quirks=GRAMMAR)).body) == {"model": "served-1", **HI}
