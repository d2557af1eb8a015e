"""What is an identifier: printed in several ways, beside words, or made up anew; and what only looks like one."""

from datetime import date
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from stdnum import luhn, verhoeff
from stdnum.de import idnr
from stdnum.es import dni
from stdnum.in_ import aadhaar
from stdnum.iso7064 import mod_11_10, mod_97_10
from stdnum.nl import bsn
from stdnum.pl import pesel

from router.classify.detector import CERTAIN_SCORE, UNCERTAIN_SCORE, Scanner
from router.classify.sensitivity.identifiers import IDENTIFIERS_FORMS, FormName, Identifiers
from router.types.request import Finding
from tests.classify.looking import IDENTIFIERS, samples, unmarked
from tests.tables import each_row

SCANNER = Scanner([IDENTIFIERS])
SAMPLES = samples("identifiers.txt")
HARMLESS = [text for title, texts in SAMPLES.items() if title.startswith("harmless") for text in texts]
FOUND = [(title, text) for title, texts in SAMPLES.items() if not title.startswith("harmless") for text in texts]
NAMES = {name for name, _ in FOUND}


def found(text: str) -> list[tuple[str, str]]:
    sure = dict.fromkeys(hit for hit in SCANNER.scan(text) if hit.score >= CERTAIN_SCORE)
    hits = [Finding(*hit[:2], (), hit.start, hit.end) for hit in sure]
    return [(one.detector.partition(".")[2], text[one.start : one.end]) for one in IDENTIFIERS.conclude(hits, hits)]


@each_row("name, text", [*FOUND, *(("", text) for text in ["", *HARMLESS])])
def test_an_identifier_is_found_where_it_is_and_not_what_only_looks_like_one(name: str, text: str) -> None:
    text, value = unmarked(text)
    hits = found(text)
    assert (name, value) in hits if name else hits == []


@each_row("text, form", [("ticket ⟦0171 2345678⟧", "phone"), ("SKU ⟦54362315K⟧", "dni"), ("⟦44051401359⟧", "pesel")])
def test_what_a_word_calls_something_else_is_only_possible(text: str, form: str) -> None:
    text, value = unmarked(text)
    possible = {(hit.form, text[hit.start : hit.end]) for hit in SCANNER.scan(text) if hit.score < CERTAIN_SCORE}
    assert (f"identifiers.{form}", value) in possible
    assert found(text) == []


def test_every_form_has_a_name_in_the_policy_and_a_sample() -> None:
    assert {form.name for form in IDENTIFIERS_FORMS} == set(get_args(FormName)) == NAMES


def test_several_in_one_text_are_all_found() -> None:
    text = "SSNs 536904399, 219099998; card 4111 1111 1111 1111 5500 0000 0000 0004, a@b.io,c@d.io"
    cards = {"4111 1111 1111 1111", "5500 0000 0000 0004"}
    assert {value for _, value in found(text)} == {"536904399", "219099998", "a@b.io", "c@d.io", *cards}


CHOICES: list[tuple[dict[str, list[str]], set[str]]] = [
    ({"only": ["card", "iban"]}, {"card", "iban"}),
    ({"without": ["card"]}, NAMES - {"card"}),
    ({"only": ["card", "iban"], "without": ["iban"]}, {"card"}),
    ({}, NAMES),
]


@each_row("choice, names", CHOICES)
def test_the_policy_chooses_among_known_forms(choice: dict[str, list[str]], names: set[str]) -> None:
    fields = {"kind": "identifiers", "class": "pii"}
    assert {form.name for form in Identifiers.model_validate(fields | choice).forms} == names
    with pytest.raises(ValidationError, match="card"):
        Identifiers.model_validate(fields | {"only": ["cards"]})


def finding(name: str, start: int, end: int, message: int = 0, *, exact: bool = True) -> Finding:
    return Finding(f"identifiers.{name}", "pii", ("messages", message), start, end, exact)


def test_one_value_is_one_finding_and_one_that_can_be_replaced_is_never_left_out_for_one_that_can_not() -> None:
    """The account of an IBAN may pass as a card; and a decoded text has a value at a longer place."""
    outer, inner, twin = finding("iban", 5, 27), finding("card", 10, 26), finding("phone", 5, 27)
    elsewhere, beside = finding("card", 10, 26, message=1), finding("email", 27, 40)
    own = [inner, twin, beside, outer, elsewhere]
    assert set(IDENTIFIERS.conclude(own, own)) == {outer, elsewhere, beside}
    exact, hidden = finding("card", 10, 26), finding("card", 5, 40, exact=False)
    same = finding("iban", 10, 26, exact=False)
    assert set(IDENTIFIERS.conclude([hidden, exact, same], [])) == {hidden, exact}
    assert IDENTIFIERS.conclude([same, exact], []) == [exact]


NEAREST = {
    **{"PESEL 51101707680": "pesel", "CPF 25622646308": "cpf", "SIN 123456782": "sin", "SSN 123456782": "ssn"},
    **{"social insurance number 123456782": "sin", "\ud800 SSN 536904399 \udfff": "ssn"},
}


@each_row("text, name", NEAREST.items())
def test_the_nearest_name_says_which_it_is_even_in_what_is_no_unicode(text: str, name: str) -> None:
    assert [form for form, _ in found(text)] == [name]


def test_three_groups_without_a_word_are_only_possibly_a_person_and_parts_of_text_no_telephones() -> None:
    assert [hit.score for hit in SCANNER.scan("see 536 90 4399 there")] == [UNCERTAIN_SCORE]
    assert SCANNER.scan('{"type":"text","text":"a"},' * 6_000) == []


def digits(length: int, first: str = "123456789") -> st.SearchStrategy[str]:
    rest = st.text("0123456789", min_size=length - 1, max_size=length - 1)
    return st.tuples(st.sampled_from(first), rest).map("".join)


def grouped(number: str, *gaps: str) -> st.SearchStrategy[str]:
    groups = [number[first : first + 4] for first in range(0, len(number), 4)]
    return st.sampled_from(gaps).map(lambda gap: gap.join(groups))


CARDS = st.tuples(st.sampled_from("45"), digits(14, "12345")).map("".join)
IBANS = digits(18).map(lambda account: f"DE{mod_97_10.calc_check_digits(account + 'DE')}{account}")
SSNS = st.tuples(st.integers(1, 665), st.integers(1, 99), st.integers(1, 9999))
# Ten digits of which one is there twice.
TAX_IDS = st.permutations("123456789").map(lambda order: "".join(order) + order[0])
BIRTHS = st.dates(date(1900, 1, 1), date(1999, 12, 31)).map(lambda day: f"{day:%y%m%d}")
PESELS = st.tuples(BIRTHS, digits(4, "0123456789")).map("".join)
AADHAARS = digits(11, "23456789").map(lambda start: start + verhoeff.calc_check_digit(start))
# The ninth digit is what the others weigh, modulo eleven; one in eleven has none.
BSNS = digits(8).map(lambda start: f"{start}{sum(map(int.__mul__, range(9, 1, -1), map(int, start))) % 11}")
HOSTS = st.integers(30, 223).filter(lambda first: first not in (100, 127, 169, 172, 192, 198, 203))
WORD = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
AREA = digits(3, "23456789")
VALID: dict[str, st.SearchStrategy[str]] = {
    "card": CARDS.flatmap(lambda start: grouped(start + luhn.calc_check_digit(start), "", " ", "-", "–", "\u00a0")),
    "iban": IBANS.flatmap(lambda number: grouped(number, "", " ")),
    "ssn": SSNS.map(lambda parts: "{:03}-{:02}-{:04}".format(*parts)),
    "de_tax_id": TAX_IDS.map(lambda number: number + mod_11_10.calc_check_digit(number))
    .filter(idnr.is_valid)
    .map("IdNr {}".format),
    "pesel": PESELS.map(lambda start: f"PESEL {start}{pesel.calc_check_digit(start)}"),
    "dni": digits(8).map(lambda number: number + dni.calc_check_digit(number)),
    "aadhaar": AADHAARS.filter(aadhaar.is_valid).flatmap(lambda number: grouped(number, " ")),
    "bsn": BSNS.filter(bsn.is_valid).map("BSN {}".format),
    "ip": st.tuples(HOSTS, *[st.integers(0, 255)] * 3).map(lambda octets: ".".join(map(str, octets))),
    "email": st.tuples(WORD, WORD, WORD).map(lambda words: "{}.{}@{}.example.com".format(*words)),
    "phone": st.tuples(AREA, AREA, digits(4)).map("-".join),
}
PLAIN, AMONG = ["{}", "it is {}.", "({})", "[{}]", "“{}”", "{}; "], ["a,{},b", "<b>{}</b>", "né à Łódź, {} 日本"]
AROUND = st.sampled_from([*PLAIN, *AMONG, '{{"value": "{}"}}', "x={}\n", "a: {}\nb: 1", "f('{}', 1)"])


@pytest.mark.parametrize("kind", VALID)
@settings(deadline=None, max_examples=40)
@given(data=st.data(), around=AROUND)
def test_a_valid_value_is_found_in_any_surroundings(kind: str, data: st.DataObject, around: str) -> None:
    value = data.draw(VALID[kind])
    text = around.format(value)
    assert any(value.endswith(number) for _, number in found(text)), text


@settings(deadline=None)
@given(digits(15, "4"), st.integers(1, 9))
def test_a_card_with_a_wrong_digit_is_none(number: str, off: int) -> None:
    check = (int(luhn.calc_check_digit(number)) + off) % 10
    assert "card" not in [name for name, _ in found(f"{number}{check}")]
