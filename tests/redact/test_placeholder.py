"""What stands for a value says its kind, is the same in a session, and is never a word of the client's."""

import pytest

from router.redact.placeholder import kind, tags
from router.redact.restore import Restorer
from router.redact.slots import Slot
from router.redact.spell import Speller
from router.types.redacted import Redacted
from tests.redact.asking import chat, user, without

MAIL, OTHER = "jane.roe@example.org", "john.doe@example.org"
KINDS = {MAIL: "identifiers.email", OTHER: "identifiers.email"}


@pytest.mark.parametrize(
    ("detector", "word"),
    [
        ("identifiers.email", "EMAIL"),
        ("identifiers.de_tax_id", "DE_TAX_ID"),
        ("secrets.aws_key", "SECRET"),
        ("keywords.word", "TERM"),
        ("names.person", "PERSON"),
        ("patterns.our own-Größe", "OUR_OWN_GR_SSE"),
        ("patterns.", "VALUE"),
        ("patterns.---", "VALUE"),
    ],
)
def test_the_kind_is_said_and_the_secret_s_issuer_is_not(detector: str, word: str) -> None:
    assert kind(detector) == word


def test_a_value_has_one_placeholder_in_all_turns_of_a_session_and_others_elsewhere() -> None:
    _, first = without(chat(user(f"{MAIL} asks")), KINDS)
    _, second = without(chat(user(f"{MAIL} asks"), user(f"{OTHER}, and {MAIL}")), KINDS)
    _, elsewhere = without(chat(user(f"{MAIL} asks")), KINDS, b"another session's key")
    assert first.items() < second.items()
    assert first.keys().isdisjoint(elsewhere.keys())


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
    assert MAIL not in repr(Slot(("messages",), MAIL, [MAIL]))
    assert MAIL not in repr(Speller(values).restore(f"{MAIL} {next(iter(values))}", json=False))
