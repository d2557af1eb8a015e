"""What leaves has placeholders where values were: in every kind of place, of every endpoint, alike in a session."""

import json
import re
from typing import Any

import pytest
from msgspec.json import encode

from router.api.chat import Traces
from router.api.responses.request import unseal
from router.redact.redact import TextSlot, closed, kind, redact, tags
from router.redact.restore import PlaceholderMatcher, Restorer
from router.types.request import Endpoint, Finding, Redacted, Request
from tests.classify.looking import CLASSIFIER
from tests.redact.wire import KEY, asked, calling, chat, found, sent, user, without
from tests.tables import data, each_row

MAIL = "jane.roe@example.org"
KINDS = {MAIL: "identifiers.email"}
CARD = "4111111111111111"
KEY_VALUE = "AKIA" + "Q3MP7LEKZ5XYW2LN"
HI, CONTENT = user("Hi"), ("messages", 0, "content")
PLACES = {name: asked(Endpoint(endpoint), **body) for name, (endpoint, body) in data(__file__, "places.yaml").items()}


@each_row("request_", PLACES.values(), ids=list(PLACES))
def test_nothing_of_a_value_is_left_in_any_place_and_all_forms_of_the_request_say_the_same(request_: Request) -> None:
    redacted, values = without(request_, KINDS)
    assert set(values.values()) == {MAIL}
    assert MAIL.encode() not in sent(redacted)
    assert all(MAIL not in passage.text and MAIL not in passage.path for passage in redacted.passages)
    assert len(redacted.passages) == len(request_.passages)
    again = asked(request_.endpoint, **json.loads(redacted.raw))
    assert set(again.passages) == set(redacted.passages)
    assert (_plain(again.body), _plain(again.chat)) == (_plain(redacted.body), _plain(redacted.chat))


def test_without_findings_the_request_is_the_same_and_fields_without_any_keep_their_bytes() -> None:
    request = chat(user(MAIL), temperature=1.0, stop=["a", "b"], logit_bias={"1": 1e2})
    redacted, _ = without(request, KINDS)
    assert {name for name, raw in redacted.body.items() if raw is not request.body[name]} == {"messages"}
    hidden = Finding("identifiers.email", "pii", CONTENT, 0, 5, exact=False)
    assert redact(request, [], KEY) == redact(request, [hidden], KEY) == (request, {})


def test_what_overlaps_or_touches_is_one_value_of_the_widest_kind() -> None:
    text = "see https://jane:pw@example.org/x now"
    spans = {"secrets.connection_string": (4, 29), "identifiers.email": (17, 31), "names.person": (31, 33)}
    findings = [Finding(name, "pii", CONTENT, *span) for name, span in spans.items()]
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


@each_row("value", ["ann", "Rex", "user", "text", "content"])
def test_short_words_are_not_replaced_inside_of_others_nor_in_the_api_s_own(value: str) -> None:
    request = chat(user([{"type": "text", "text": f"{value}, {value}s and un{value}"}]))
    redacted, values = redact(request, found(request, {value: "keywords.word"})[:1], KEY)
    (placeholder,) = values
    part = {"type": "text", "text": f"{placeholder}, {value}s and un{value}"}
    assert json.loads(redacted.raw)["messages"] == [user([part])]


@each_row("text, value", data(__file__, "arguments.yaml"))
def test_arguments_stay_json(text: str, value: str) -> None:
    for ascii_only in (False, True):
        inside = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        request = chat(HI, calling(text.replace("%s", inside)), user(value))
        redacted, values = without(request, {inside: "secrets.key", value: "secrets.key"})
        ((placeholder, known),) = values.items()
        assert known == value
        assert arguments(redacted) == json.loads(text.replace("%s", placeholder))


def test_a_number_in_json_becomes_a_string_and_a_letter_of_an_escape_is_not_of_the_value() -> None:
    """To a scanner of the raw text, a line break and an address look like one longer address."""
    redacted, values = without(chat(HI, calling(f'{{"card": {CARD}, "n": 1}}')), {CARD: "identifiers.card"})
    (placeholder,) = values
    assert arguments(redacted) == {"card": placeholder, "n": 1}
    _, values = without(chat(HI, calling(json.dumps({"text": f"to\n{MAIL}"}))), {f"n{MAIL}": "identifiers.email"})
    assert list(values.values()) == [MAIL]


def test_a_key_and_its_value_are_both_replaced() -> None:
    request = chat(HI, metadata={MAIL: CARD, "Rex": f"{MAIL} it is"})
    redacted, values = without(request, {**KINDS, CARD: "identifiers.card"})
    assert not [value for value in (MAIL, CARD) if value.encode() in redacted.raw]
    assert {MAIL, CARD} <= set(values.values())


def test_names_ids_and_keys_get_placeholders_without_marks() -> None:
    """Providers refuse angle brackets there."""
    name, call, schema = (json.loads(without(PLACES[place], KINDS)[0].raw) for place in ("name", "call id", "schema"))
    (key,) = schema["response_format"]["json_schema"]["schema"]["properties"]
    assert "<" not in name["messages"][0]["name"] + call["messages"][1]["tool_call_id"] + key


def test_detectors_see_nothing_in_what_is_left() -> None:
    """The door scans the bytes that are sent: a placeholder must not look like what it stands for."""
    text = f"Mail {MAIL}, card {CARD}, aws_secret_access_key={KEY_VALUE}, password: {'hun' + 'ter2!x9'} ssn 536-22-8726"
    data = json.dumps({"password": "hun" + "ter2!x9", "card": int(CARD)})
    request = chat(user(text), user(data), metadata={"m": MAIL})
    seen = CLASSIFIER.classify(request, ())
    assert {"pii", "secret"} <= seen.classes
    redacted, values = redact(request, seen.findings, KEY)
    assert len(values) >= 4
    assert CLASSIFIER.scan(redacted.raw) == frozenset()


def test_thoughts_that_a_client_sends_back_are_redacted_in_their_envelope() -> None:
    """Else what is in it would keep its class, and the session could not go on."""
    traces = Traces(f"I write to {MAIL}.", [{"type": "thinking", "thinking": f"\n{MAIL}?", "signature": "s"}])
    thought = closed(encode(traces).decode())
    items = [{"type": "reasoning", "summary": [], "encrypted_content": thought}, {"role": "assistant", "content": "Ok"}]
    redacted, values = without(asked(Endpoint.RESPONSES, input=[HI, *items, user(MAIL)]), KINDS)
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
    text = " ".join([f"u{number}@host{number}.example" for number in range(3_000)])
    findings = [Finding("identifiers.email", "pii", CONTENT, *match.span()) for match in re.finditer(r"\S+", text)]
    redacted, values = redact(chat(user(text)), findings, KEY)
    assert "@" not in redacted.passages[0].text
    back = Restorer(values).body({"messages": redacted.body["messages"]})
    assert json.loads(bytes(back["messages"]))[0]["content"] == text
    assert capfd.readouterr() == ("", "")


WORDS = {
    **{"identifiers.email": "EMAIL", "identifiers.de_tax_id": "DE_TAX_ID", "secrets.aws_key": "SECRET"},
    **{"keywords.word": "TERM", "names.person": "PERSON", "patterns.our own-Größe": "OUR_OWN_GR_SSE"},
    **{"patterns.": "VALUE", "patterns.---": "VALUE"},
}


@each_row("detector, word", WORDS.items())
def test_the_kind_is_said_and_the_secret_s_issuer_is_not(detector: str, word: str) -> None:
    assert kind(detector) == word


def test_tags_that_meet_one_another_or_the_client_s_words_grow_until_they_differ() -> None:
    codes = {"a": "A" * 52, "b": "A" * 11 + "B" * 41, "c": "C" * 52, "d": "D" * 52}
    assert tags(codes, ["D" * 9]) == {"a": "A" * 12, "b": "A" * 11 + "B", "c": "C" * 8, "d": "D" * 12}


def test_what_looks_like_a_placeholder_in_the_client_s_text_is_not_taken() -> None:
    _, values = without(chat(user(MAIL)), KINDS)
    (usual,) = values
    for lookalike in (usual, usual.lower(), usual[1:-1]):
        redacted, values = without(chat(user(f"{MAIL}, but {lookalike} is mine")), KINDS)
        (placeholder,) = values
        assert not placeholder.startswith(usual[:-1]) or len(placeholder) > len(usual)
        assert lookalike in redacted.passages[0].text


def test_nothing_shows_values_that_need_not() -> None:
    redacted, values = without(chat(user(MAIL)), KINDS)
    assert MAIL not in repr(Redacted(redacted, frozenset(), values))
    assert MAIL not in repr(Restorer(values))
    assert MAIL not in repr(TextSlot(("messages",), MAIL, [MAIL]))
    assert MAIL not in repr(PlaceholderMatcher(values).restore(f"{MAIL} {next(iter(values))}", json=False))


def arguments(request: Request) -> Any:
    """Of the call in its second message."""
    return json.loads(json.loads(request.raw)["messages"][1]["tool_calls"][0]["function"]["arguments"])


def _plain(fields: Any) -> Any:
    return None if fields is None else {name: json.loads(bytes(raw)) for name, raw in fields.items()}
