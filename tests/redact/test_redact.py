"""What leaves has placeholders where values were: in every kind of place, of every endpoint."""

import json
from typing import Any

import pytest

from router.api.responses.reasoning import Traces, seal, unseal
from router.classify.classify import Classifier
from router.classify.detector import Detects
from router.classify.sensitivity.identifiers import Identifiers
from router.classify.sensitivity.secrets import Secrets
from router.redact.redact import redact
from router.redact.restore import Restorer
from router.types.classification import Finding
from router.types.request import Endpoint, Request
from tests.redact.asking import KEY, asked, chat, found, sent, user, without

MAIL = "jane.roe@example.org"
KINDS = {MAIL: "identifiers.email"}
CARD = "4111111111111111"
KEY_VALUE = "AKIA" + "Q3MP7LEKZ5XYW2LN"
CALL = {"id": "call_1", "type": "function", "function": {"name": "send", "arguments": json.dumps({"to": MAIL})}}
SCHEMA = {"type": "object", "properties": {MAIL: {"type": "string", "description": f"of {MAIL}", "enum": [MAIL]}}}
TOOL = {"type": "function", "function": {"name": "send", "description": f"To {MAIL}", "parameters": SCHEMA}}
HI = user("Hi")
PLACES: dict[str, Request] = {
    "system": chat({"role": "system", "content": f"You help {MAIL}."}, HI),
    "content": chat(user(f"I am {MAIL}, twice {MAIL}.")),
    "part": chat(user([{"type": "text", "text": f"Mail: {MAIL}"}])),
    "file name": chat(user([{"type": "file", "file": {"filename": f"{MAIL}.txt", "file_data": "data:text/plain,x"}}])),
    "image link": chat(user([{"type": "image_url", "image_url": {"url": f"https://x.y/{MAIL}.png"}}])),
    "name": chat({"role": "user", "name": MAIL, "content": "Hi"}),
    "refusal": chat(HI, {"role": "assistant", "refusal": f"Not {MAIL}"}, HI),
    "arguments": chat(HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
    "tool result": chat(HI, {"role": "tool", "tool_call_id": "c", "content": json.dumps([{"a": MAIL}])}),
    "call id": chat(HI, {"role": "tool", "tool_call_id": MAIL, "content": "x"}),
    "unknown field": chat({"role": "assistant", "content": "x", "reasoning_content": f"It is {MAIL}"}, HI),
    "tool": chat(HI, tools=[TOOL]),
    "schema": chat(HI, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}),
    "metadata": chat(HI, metadata={"who": MAIL, MAIL: "x"}),
    "field": chat(HI, note=f"for {MAIL}", notes=[[MAIL]]),
    "prompt": asked(Endpoint.COMPLETIONS, prompt=f"{MAIL} says"),
    "prompts": asked(Endpoint.COMPLETIONS, prompt=["a", f"{MAIL} says"], suffix=MAIL),
    "embedding": asked(Endpoint.EMBEDDINGS, input=MAIL),
    "embeddings": asked(Endpoint.EMBEDDINGS, input=["a", MAIL], user=MAIL),
    "responses": asked(Endpoint.RESPONSES, input=f"{MAIL} says", instructions=f"Help {MAIL}"),
    "items": asked(
        Endpoint.RESPONSES,
        input=[
            user(f"{MAIL} says"),
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps({"a": f"\n{MAIL}"})},
            {"type": "function_call_output", "call_id": "c", "output": json.dumps({"b": MAIL})},
        ],
    ),
    "native": asked(Endpoint.RESPONSES, input=f"{MAIL} says", tools=[{"type": "web_search"}]),
}


@pytest.mark.parametrize("request_", PLACES.values(), ids=PLACES.keys())
def test_nothing_of_a_value_is_left_in_any_place(request_: Request) -> None:
    redacted, values = without(request_, KINDS)
    assert set(values.values()) == {MAIL}
    assert MAIL.encode() not in sent(redacted)
    assert all(MAIL not in passage.text and MAIL not in passage.path for passage in redacted.passages)
    assert len(redacted.passages) == len(request_.passages)


@pytest.mark.parametrize("request_", PLACES.values(), ids=PLACES.keys())
def test_all_forms_of_the_request_say_the_same(request_: Request) -> None:
    """Whoever reads it again finds what the redacted request says of itself."""
    redacted, _ = without(request_, KINDS)
    again = asked(request_.endpoint, **json.loads(redacted.raw))
    assert set(again.passages) == set(redacted.passages)
    assert _plain(again.body) == _plain(redacted.body)
    assert _plain(again.chat) == _plain(redacted.chat)


def test_fields_without_findings_keep_their_bytes() -> None:
    request = chat(user(MAIL), temperature=1.0, stop=["a", "b"], logit_bias={"1": 1e2})
    redacted, _ = without(request, KINDS)
    changed = {name for name, raw in redacted.body.items() if raw is not request.body[name]}
    assert changed == {"messages"}


def test_without_findings_the_request_is_the_same() -> None:
    request = chat(user(MAIL))
    hidden = Finding("identifiers.email", "pii", ("messages", 0, "content"), 0, 5, exact=False)
    assert redact(request, [], KEY) == (request, {})
    assert redact(request, [hidden], KEY) == (request, {})


def test_what_overlaps_or_touches_is_one_value_of_the_widest_kind() -> None:
    text = "see https://jane:pw@example.org/x now"
    path = ("messages", 0, "content")
    spans = {"secrets.connection_string": (4, 29), "identifiers.email": (17, 31), "names.person": (31, 33)}
    findings = [Finding(name, "pii", path, *span) for name, span in spans.items()]
    redacted, values = redact(chat(user(text)), findings, KEY)
    ((placeholder, value),) = values.items()
    assert value == "https://jane:pw@example.org/x"
    assert placeholder.startswith("<SECRET_")
    assert redacted.passages[0].text == f"see {placeholder} now"


def test_a_value_found_once_is_replaced_wherever_it_stands() -> None:
    request = chat(user(f"I am {MAIL}."), user(f"x{MAIL}y"), metadata={"to": MAIL})
    redacted, values = redact(request, found(request, KINDS)[:1], KEY)
    assert list(values.values()) == [MAIL]
    assert MAIL.encode() not in redacted.raw


@pytest.mark.parametrize("value", ["ann", "Rex", "user", "text", "content"])
def test_short_words_are_not_replaced_inside_of_others_nor_in_the_api_s_own(value: str) -> None:
    request = chat(user([{"type": "text", "text": f"{value}, {value}s and un{value}"}]))
    redacted, values = redact(request, found(request, {value: "keywords.word"})[:1], KEY)
    (placeholder,) = values
    part = {"type": "text", "text": f"{placeholder}, {value}s and un{value}"}
    assert json.loads(redacted.raw)["messages"] == [user([part])]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"to": "%s"}', "plain@example.org"),
        ('{"to": "a\\n%s\\n"}', "plain@example.org"),
        ('{"key": "%s"}', 'quo"te\\and\nline'),
        ('{"key": ["%s", 1]}', "Ünï ☃ 👋 cødé"),
    ],
)
def test_arguments_stay_json(text: str, value: str) -> None:
    for ascii_only in (False, True):
        inside = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text.replace("%s", inside)}}
        request = chat(user("Hi"), {"role": "assistant", "content": None, "tool_calls": [call]}, user(value))
        redacted, values = without(request, {inside: "secrets.key", value: "secrets.key"})
        ((placeholder, known),) = values.items()
        arguments = json.loads(redacted.raw)["messages"][1]["tool_calls"][0]["function"]["arguments"]
        assert known == value
        assert json.loads(arguments) == json.loads(text.replace("%s", placeholder))


def test_a_number_in_json_becomes_a_string() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": f'{{"card": {CARD}, "n": 1}}'}}
    request = chat(user("Hi"), {"role": "assistant", "content": None, "tool_calls": [call]})
    redacted, values = without(request, {CARD: "identifiers.card"})
    (placeholder,) = values
    arguments = json.loads(redacted.raw)["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"card": placeholder, "n": 1}


def test_a_letter_of_an_escape_is_not_of_the_value() -> None:
    """To a scanner of the raw text, a line break and an address look like one longer address."""
    raw = json.dumps({"text": f"to\n{MAIL}"})
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": raw}}
    request = chat(user("Hi"), {"role": "assistant", "content": None, "tool_calls": [call]})
    _, values = without(request, {f"n{MAIL}": "identifiers.email"})
    assert list(values.values()) == [MAIL]


def test_a_key_and_its_value_are_both_replaced() -> None:
    request = chat(user("Hi"), metadata={MAIL: CARD, "Rex": f"{MAIL} it is"})
    redacted, values = without(request, {**KINDS, CARD: "identifiers.card"})
    assert MAIL.encode() not in redacted.raw
    assert CARD.encode() not in redacted.raw
    assert {MAIL, CARD} <= set(values.values())


def test_names_ids_and_keys_get_placeholders_without_marks() -> None:
    """Providers refuse angle brackets there."""
    redacted, _ = without(PLACES["name"], KINDS)
    assert "<" not in json.loads(redacted.raw)["messages"][0]["name"]
    redacted, _ = without(PLACES["call id"], KINDS)
    assert "<" not in json.loads(redacted.raw)["messages"][1]["tool_call_id"]
    redacted, _ = without(PLACES["schema"], KINDS)
    (key,) = json.loads(redacted.raw)["response_format"]["json_schema"]["schema"]["properties"]
    assert "<" not in key


def test_detectors_see_nothing_in_what_is_left() -> None:
    """The door scans the bytes that are sent: a placeholder must not look like what it stands for."""
    detectors: list[Detects] = [
        Identifiers(kind="identifiers", data_class="pii"),
        Secrets(kind="secrets", data_class="secret"),
    ]
    ranks = {"internal": 0, "pii": 1, "secret": 2}
    classifier = Classifier(detectors, ranks)
    text = f"Mail {MAIL}, card {CARD}, aws_secret_access_key={KEY_VALUE}, password: {'hun' + 'ter2!x9'} ssn 536-22-8726"
    request = chat(
        user(text), user(json.dumps({"password": "hun" + "ter2!x9", "card": int(CARD)})), metadata={"m": MAIL}
    )
    seen = classifier.classify(request, ())
    assert {"pii", "secret"} <= seen.classes
    redacted, values = redact(request, seen.findings, KEY)
    assert len(values) >= 4
    assert classifier.scan(redacted.raw) == frozenset()


def test_thoughts_that_a_client_sends_back_are_redacted_in_their_envelope() -> None:
    """Else what is in it would keep its class, and the session could not go on."""
    thought = seal(Traces(f"I write to {MAIL}.", [{"type": "thinking", "thinking": f"\n{MAIL}?", "signature": "s"}]))
    items = [{"type": "reasoning", "summary": [], "encrypted_content": thought}, {"role": "assistant", "content": "Ok"}]
    request = asked(Endpoint.RESPONSES, input=[user("Hi"), *items, user(MAIL)])
    redacted, values = without(request, KINDS)
    (placeholder,) = values
    envelope = json.loads(redacted.raw)["input"][1]["encrypted_content"]
    traces = unseal(envelope, "")
    assert traces.reasoning_content == f"I write to {placeholder}."
    assert traces.thinking_blocks[0]["thinking"] == f"\n{placeholder}?"
    again = asked(Endpoint.RESPONSES, **json.loads(redacted.raw))
    assert _plain(again.chat) == _plain(redacted.chat)
    damaged = chat(user(f"lowpass1.{MAIL}"))
    assert MAIL.encode() not in without(damaged, KINDS)[0].raw


def test_thousands_of_values(capfd: pytest.CaptureFixture[str]) -> None:
    """They are looked up: no pattern is so large that its engine gives up, and says so."""
    addresses = [f"u{number}@host{number}.example" for number in range(3_000)]
    text = " ".join(addresses)
    request = chat(user(text))
    starts = [text.index(f"{address} ") if address != addresses[-1] else text.rindex(address) for address in addresses]
    path = ("messages", 0, "content")
    spans = zip(starts, addresses, strict=True)
    findings = [Finding("identifiers.email", "pii", path, start, start + len(one)) for start, one in spans]
    redacted, values = redact(request, findings, KEY)
    assert "@" not in redacted.passages[0].text
    back = Restorer(values).body({"messages": redacted.body["messages"]})
    assert json.loads(bytes(back["messages"]))[0]["content"] == text
    assert capfd.readouterr() == ("", "")


def _plain(fields: Any) -> Any:
    return None if fields is None else {name: json.loads(bytes(raw)) for name, raw in fields.items()}
