"""Valid numbers that nobody wrote down before are found in any surroundings; the same with a wrong digit are not."""

from collections.abc import Callable
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import luhn, verhoeff
from stdnum.de import idnr
from stdnum.es import dni
from stdnum.in_ import aadhaar
from stdnum.iso7064 import mod_11_10, mod_97_10
from stdnum.nl import bsn
from stdnum.pl import pesel

from tests.classify.identifiers.test_forms import found

Draw = st.DrawFn


def digits(length: int, first: str = "123456789") -> st.SearchStrategy[str]:
    rest = st.text("0123456789", min_size=length - 1, max_size=length - 1)
    return st.tuples(st.sampled_from(first), rest).map("".join)


def grouped(number: str, sizes: tuple[int, ...], gap: str) -> str:
    groups, first = [], 0
    for size in sizes:
        groups.append(number[first : first + size])
        first += size
    return gap.join((*groups, number[first:]) if first < len(number) else groups)


@st.composite
def cards(draw: Draw) -> str:
    """Visa and Mastercard."""
    number = draw(st.sampled_from("45").flatmap(lambda first: digits(14, "12345").map(first.__add__)))
    return grouped(
        number + luhn.calc_check_digit(number), (4, 4, 4, 4), draw(st.sampled_from(["", " ", "-", "–", "\u00a0"]))
    )


@st.composite
def ibans(draw: Draw) -> str:
    """German: eighteen digits."""
    account = draw(digits(18))
    check = mod_97_10.calc_check_digits(account + "DE")
    return grouped("DE" + check + account, (4,) * 5, draw(st.sampled_from(["", " "])))


def social_security_numbers() -> st.SearchStrategy[str]:
    return st.tuples(st.integers(1, 665), st.integers(1, 99), st.integers(1, 9999)).map(
        lambda parts: "{:03}-{:02}-{:04}".format(*parts)
    )


def tax_ids() -> st.SearchStrategy[str]:
    """Ten digits of which one is there twice."""
    return (
        st.permutations("123456789")
        .map(lambda order: "".join(order) + order[0])
        .map(lambda number: number + mod_11_10.calc_check_digit(number))
        .filter(idnr.is_valid)
    )


def persons_of_poland() -> st.SearchStrategy[str]:
    day = st.dates(date(1900, 1, 1), date(1999, 12, 31)).map(lambda day: f"{day:%y%m%d}")
    number = st.tuples(day, digits(4, "0123456789")).map("".join)
    return number.map(lambda start: start + pesel.calc_check_digit(start))


def persons_of_spain() -> st.SearchStrategy[str]:
    return digits(8).map(lambda number: number + dni.calc_check_digit(number))


def persons_of_india() -> st.SearchStrategy[str]:
    number = digits(11, "23456789").map(lambda start: start + verhoeff.calc_check_digit(start))
    return number.filter(aadhaar.is_valid).map(lambda number: grouped(number, (4, 4, 4), " "))


def persons_of_the_netherlands() -> st.SearchStrategy[str]:
    """The ninth digit is what the others weigh, modulo eleven; one in eleven has none."""
    number = digits(8).map(lambda start: f"{start}{sum(map(int.__mul__, range(9, 1, -1), map(int, start))) % 11}")
    return number.filter(bsn.is_valid).map("BSN {}".format)


def addresses() -> st.SearchStrategy[str]:
    parts = st.integers(1, 223).filter(lambda first: first not in (10, 100, 127, 169, 172, 192, 198, 203))
    return st.tuples(parts, *[st.integers(0, 255)] * 3).map(lambda octets: ".".join(map(str, octets)))


def mails() -> st.SearchStrategy[str]:
    word = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
    return st.tuples(word, word, word).map(lambda words: "{}.{}@{}.example.com".format(*words))


def telephones() -> st.SearchStrategy[str]:
    return st.tuples(digits(3, "23456789"), digits(3, "23456789"), digits(4)).map("-".join)


KINDS: dict[str, Callable[[], st.SearchStrategy[str]]] = {
    "card": cards,
    "iban": ibans,
    "ssn": social_security_numbers,
    "de_tax_id": tax_ids,
    "pesel": persons_of_poland,
    "dni": persons_of_spain,
    "aadhaar": persons_of_india,
    "bsn": persons_of_the_netherlands,
    "ip": addresses,
    "email": mails,
    "phone": telephones,
}
AROUND = st.sampled_from(
    [
        "{}",
        "it is {}.",
        "({})",
        '{{"value": "{}"}}',
        "x={}\n",
        "a,{},b",
        "<b>{}</b>",
        "né à Łódź, {} 日本",
        "[{}]",
        "“{}”",
        "{}; ",
    ]
)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), around=AROUND)
def test_it_is_found_in_any_surroundings(kind: str, data: st.DataObject, around: str) -> None:
    value = data.draw(KINDS[kind]())
    text = around.format(value)
    seen = {number for _, number in found(text)}
    assert any(number in value and value.endswith(number) for number in seen), text


@given(digits(15, "4"), st.integers(1, 9))
def test_a_card_with_a_wrong_digit_is_none(number: str, off: int) -> None:
    check = (int(luhn.calc_check_digit(number)) + off) % 10
    assert "card" not in [name for name, _ in found(f"{number}{check}")]


@given(st.text(max_size=60))
def test_whatever_stands_in_a_text_findings_lie_inside_it(text: str) -> None:
    for _, value in found(f"SSN phone IBAN {text} 4111 1111 1111 1111 {text}"):
        assert value
