"""What counts as sensitive text, and what does not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.scanner import Scanner
from router.classify.sensitivity import Identifiers

IDENTIFIERS = Identifiers.model_validate({"kind": "identifiers", "class": "pii"})


def found(detector: Any, text: str) -> list[tuple[str, str]]:
    return [(hit.form, text[hit.start : hit.end]) for hit in Scanner([detector]).scan(text)]


PERSONS = {
    "mail to ada.lovelace+x@mail.example.co.uk now": ("email", "ada.lovelace+x@mail.example.co.uk"),
    "a@b.io": ("email", "a@b.io"),
    "grüße an jörg@beispiel.de": ("email", "rg@beispiel.de"),
    "SSN 536-90-4399.": ("ssn", "536-90-4399"),
    "card 4111 1111 1111 1111, thanks": ("card", "4111 1111 1111 1111"),
    "5500-0000-0000-0004": ("card", "5500-0000-0000-0004"),
    "378282246310005": ("card", "378282246310005"),
    "4111 1111 1111 1111 123": ("card", "4111 1111 1111 1111"),
    "4111111111111111 12 27 123": ("card", "4111111111111111"),
    "no. 12 4111 1111 1111 1111": ("card", "4111 1111 1111 1111"),
    "2026 12 31 4111111111111111": ("card", "4111111111111111"),
    "ref AB12 4111 1111 1111 1111": ("card", "4111 1111 1111 1111"),
    "IBAN DE89 3704 0044 0532 0130 00": ("iban", "DE89 3704 0044 0532 0130 00"),
    "DE89370400440532013000": ("iban", "DE89370400440532013000"),
    "BE68 5390 0754 7034 EUR 500": ("iban", "BE68 5390 0754 7034"),
    "AT61 1904 3002 3457 3201 BIC GIBAATWW": ("iban", "AT61 1904 3002 3457 3201"),
    "GB82 WEST 1234 5698 7654 32": ("iban", "GB82 WEST 1234 5698 7654 32"),
}
NOBODY = [
    "",
    "a plain sentence about nothing",
    "user@localhost",
    "@handle and foo@",
    "4111 1111 1111 1112",
    "0000 0000 0000 0000",
    "order 123456789",
    "000-12-3456",
    "666-12-3456",
    "900-12-3456",
    "536-00-4399",
    "536-90-0000",
    "phone 555-90-43990",
    "DE88 3704 0044 0532 0130 00",
    "AB12 CDEF",
    "version 1.2.3-45",
]


@pytest.mark.parametrize("text", PERSONS)
def test_persons_and_accounts_are_found_where_they_are(text: str) -> None:
    kind, value = PERSONS[text]
    assert (f"identifiers.{kind}", value) in found(IDENTIFIERS, text)


@pytest.mark.parametrize("text", NOBODY)
def test_what_only_looks_like_a_person_is_not_found(text: str) -> None:
    assert found(IDENTIFIERS, text) == []


PIECES = [*PERSONS, *NOBODY, " ", "\n", "ü", "😀", "4111", "-", "@"]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=6).map("".join)


@settings(deadline=None)
@given(TEXTS)
def test_findings_lie_inside_the_text(text: str) -> None:
    for hit in Scanner([IDENTIFIERS]).scan(text):
        assert 0 <= hit.start < hit.end <= len(text)
        assert hit.data_class == "pii"
