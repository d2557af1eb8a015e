"""Identifiers that form and check digits alone can't confirm: the text around a candidate decides."""

import ipaddress
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import re2
from stdnum.ca import sin as canadian
from stdnum.iso7064 import mod_97_10

from router.classify.detector import UNCERTAIN_SCORE, Confirm, Span
from router.classify.sensitivity import context_rules
from router.classify.sensitivity.checksums import luhn, ssn
from router.types.tables import patterns, table

_IBAN_LENGTH = {
    country: length for length, countries in table("classify/data/iban.yaml").items() for country in countries.split()
}
NUMBERS = patterns(
    "classify/data/identifiers.yaml",
    countries="|".join(_IBAN_LENGTH),
    **{name: context_rules.NUMBER_NAMES[name] for name in ("gap", "national", "sin", "ssn", "bsn")},
)
_IS = SimpleNamespace(**{name: re2.compile(pattern) for name, pattern in NUMBERS["expressions"].items()})

# United States and Canada.

_confirm_ssn = context_rules.shaped(ssn)
_confirm_sin = context_rules.shaped(canadian.is_valid, own="sin")


def printed_ssn(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a US social security number; without dashes as uncertain, since it may be any three numbers."""
    for span in _confirm_ssn(text, start, end):
        yield span._replace(score=UNCERTAIN_SCORE) if " " in text[span.start : span.end] else span


def sin(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a Canadian SIN, unless its groups are thousands, followed by what is counted, or a colour."""
    for span in _confirm_sin(text, start, end):
        counted = " " in text[start:end] and _IS.counted.match(text[span.end : span.end + 2])
        groups = text[span.start : span.end].split(" ")
        if not counted and not all(group.isdigit() and int(group) < 256 for group in groups):
            yield span


_named_document = context_rules.preceded_by("dni|nif|documento|identidad|ppsn?")


def reject_hashes(confirm: Confirm) -> Confirm:
    """Returns a stricter check: digits and a letter from a to f may begin a hash, unless a word names them."""

    def confirmed(text: str, start: int, end: int) -> Iterator[Span]:
        for span in confirm(text, start, end):
            if text[span.end - 1] not in "abcdef" or _named_document(text, span.start):
                yield span

    return confirmed


# Payment cards and bank accounts.

_FEWEST_DIGITS = 12
_WEAK_DIGITS = 14
_LONGEST_CARD = 16
"""Number of digits of usual cards: longer ones are rare, and a counter of nanoseconds is as long."""
_NEAR_CARD = 40
"""Number of characters before a number in which a word for cards is looked for."""


def _is_card(digits: str) -> bool:
    return luhn(digits) and _IS.is_issued.fullmatch(digits) is not None and len(set(digits)) > 1


def card(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a card number. Groups after it may belong to the text: "… 1111 123"."""
    start, end = context_rules.trimmed(text, start, end)
    # In tables with an empty cell all numbers of its column are floats: 4111111111111111.0.
    as_float = text[end : end + 2] == ".0" and not text[end + 2 : end + 3].isalnum()
    if not context_rules.stands_alone(text[: end + 1] if as_float else text, start, end):
        return
    for last in (end, *_shorter_ends(text, start, end)):
        printed, number = text[start:last], context_rules.without_gaps(text[start:last])
        # Cards are printed with one kind of gap; a table has points and blanks.
        is_decimal = "." in printed and len(set(printed)) - len(set(number)) > 1
        if (
            not is_decimal
            and _is_card(number)
            and not (context_rules.is_quantity(text, start, last) or _is_counter(text, start, last, number))
        ):
            yield Span(start, last)
            return


def _is_counter(text: str, start: int, end: int, number: str) -> bool:
    """Returns whether a number is likely a counter: one in ten has the checksum, and nothing names a card."""
    is_plain = text[start:end].isdigit() and (
        context_rules.is_named_thing(text, start) or context_rules.is_listed(text, start, end, _is_card)
    )
    is_short = len(number) <= _WEAK_DIGITS and context_rules.is_number_cell(text, start, end)
    # `item_4111…`, `/status/4360…`, nineteen digits: made by machines.
    before = text[max(0, start - 2) : start]
    made = before[-1:] in ("_", "/") or (before[-1:] == "-" and before[:1].isalpha()) or len(number) > _LONGEST_CARD
    return (is_plain or is_short or made) and _IS.card.search(text[max(0, start - _NEAR_CARD) : start]) is None


def _shorter_ends(text: str, start: int, end: int) -> Iterator[int]:
    """Yields the ends of the number without its last groups, while enough digits for a card are left."""
    digits = sum(map(str.isdigit, text[start:end]))
    for last in range(end - 1, start, -1):
        if digits < _FEWEST_DIGITS:
            return
        if not text[last].isdigit():
            yield last
        else:
            digits -= 1


_LONGEST_IBAN = 33 + 12
"""Maximum length in characters, with the gaps between groups."""


def iban(text: str, start: int, end: int) -> Iterator[Span]:
    start, _ = context_rules.trimmed(text, start, end)
    start += 4 * (text[start : start + 4].upper() == "IBAN")
    number, end_of_number = _letters_and_digits(text, start, _IBAN_LENGTH[text[start : start + 2].upper()])
    if not number or text[end_of_number : end_of_number + 1].isalnum():
        return
    # Not a dump: groups of hexadecimal digits, and one more.
    is_dump = " " in text[start:end_of_number] and _IS.hex_groups.fullmatch(text[start : end_of_number + 5])
    if not is_dump and mod_97_10.is_valid(number[4:] + number[:4]):
        yield Span(start, end_of_number)


def _letters_and_digits(text: str, start: int, length: int) -> tuple[str, int]:
    """Returns `length` letters and digits in capitals, and where they end; "" if there are fewer."""
    characters = ""
    for index, character in enumerate(text[start : start + _LONGEST_IBAN], start):
        if character.isascii() and character.isalnum():
            characters += character.upper()
            if len(characters) == length:
                return characters, index + 1
        elif character.isalnum() or character == "\n":
            break
    return "", start


# E-mail addresses and postal addresses.

_WORD_REACH = 256
_CODE_ACCOUNTS = ("git", "hg", "svn")
"""Accounts with which code is fetched over SSH: git@host:path."""


def email(text: str, start: int, end: int) -> Iterator[Span]:
    while text[start] in ".'%":
        start += 1
    # Code: a product of matrices and a call, q@k.transpose(0, 1).
    is_code = text[end : end + 1] == "(" or text[start:end].partition("@")[0] in _CODE_ACCOUNTS
    if is_code or text[start - 1 : start].isalnum():
        return
    before = text[max(0, start - _WORD_REACH) : start]
    word = before[max(before.rfind(" "), before.rfind("\n"), before.rfind('"')) + 1 :]
    # A user who logs in at an address: scheme://user:password@host.
    if "://" not in word or set(word.partition("://")[2]).intersection("/?#"):
        yield Span(start, end)


_ADDRESS_BEFORE, _ADDRESS_REACH = 24, 70
"""Number of characters before a street in which a company may be named, and after it in which its postcode follows."""


def _confirm_street(*postcodes: Any) -> Confirm:
    """Returns a check that confirms a street with a postcode of the country after it, unless it is a company's."""

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        after = text[end : end + _ADDRESS_REACH]
        if _IS.organisation.search(text[max(0, start - _ADDRESS_BEFORE) : start]):
            return
        ends = [match.end() for match in (postcode.search(after) for postcode in postcodes) if match]
        if ends:
            yield Span(start, end + min(ends))

    return confirm


english_address = _confirm_street(_IS.us_postcode, _IS.gb_postcode)
german_address, french_address = _confirm_street(_IS.german_postcode), _confirm_street(_IS.french_postcode)


# Network addresses.
#
# A global address of a single machine identifies its user. Loopback, private, link-local, multicast and reserved
# addresses mean the same everywhere, and version numbers look alike: neither counts. Addresses reserved for
# documentation count, since they stand for real ones.


_NETWORK_BEFORE, _NETWORK_AFTER = 64, 32
_EXAMPLE_NETWORKS = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))


def v4(text: str, start: int, end: int) -> Iterator[Span]:
    start, end = context_rules.trimmed(text, start, end)
    before = text[max(0, start - _NETWORK_BEFORE) : start].rpartition("\n")[2]
    after = text[end : end + _NETWORK_AFTER].partition("\n")[0]
    is_drawing = _IS.decimal.search(before) and _IS.next.match(after)
    # A port or a range may follow, but not another number.
    is_longer = text[start - 1 : start] == "." or (text[end : end + 1] == "." and text[end + 1 : end + 2].isalnum())
    if is_longer or is_drawing or _IS.version.search(before) or _IS.built.search(after):
        return
    is_served = _IS.served.match(after) or _IS.network.search(before) or _IS.network.search(after)
    if is_served or not (_IS.low.match(text[start:end]) or _IS.release.search(before) or _IS.release.search(after)):
        yield from _confirm_address(text, start, end)


def v6(text: str, start: int, end: int) -> Iterator[Span]:
    start, end = context_rules.trimmed(text, start, end)
    before = text[max(0, start - 2) : start]
    pairs = text.count(":", start, end) == 7 and end - start == 23  # of a serial number, or a storage adapter
    if not (pairs or (before[-1:] == ":" and before[0] in context_rules.HEX)) and text[end : end + 1] != ":":
        yield from _confirm_address(text, start, end)


_VIRTUAL_PREFIXES = ("0242", "525400", "005056", "000c29", "000569", "080027", "00155d", "00163e", "001c42")
"""Prefixes of MAC addresses of virtual machines: Docker, QEMU, VMware, VirtualBox, Hyper-V, Xen, Parallels."""


def mac(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms the MAC address of a device. Rejects fingerprints (which go on byte by byte), times (which have no
    letter), groups (IEEE 802: lowest bit of the first byte) and virtual machines."""
    start, end = context_rules.trimmed(text, start, end)
    separator = text[start + 2]
    digits = text[start:end].replace(separator, "").lower()
    is_no_device = digits.isdecimal() or int(digits[:2], 16) & 1 or digits.startswith(_VIRTUAL_PREFIXES)
    if not (
        is_no_device
        or text[start - 1 : start] == separator
        or (text[end : end + 1] == separator and text[end + 1 : end + 2] in context_rules.HEX)
    ):
        yield Span(start, end)


def _is_network(text: str, start: int, end: int) -> bool:
    """Returns whether an address, with its prefix length, denotes several machines."""
    length = _IS.network_length.match(text[end : end + 5])
    try:
        network = ipaddress.ip_network(text[start:end] + (length[0] if length else ""))
    except ValueError:
        return False
    return network.num_addresses > 1


def _confirm_address(text: str, start: int, end: int) -> Iterator[Span]:
    try:
        address = ipaddress.ip_address(text[start:end])
    except ValueError:
        return
    if address.version == 4:  # unique local addresses of IPv6 are random, and so identify as well as any
        identifies = address.is_global or any(address in network for network in _EXAMPLE_NETWORKS)
    else:
        identifies = not (address.is_loopback or address.is_link_local or address.is_unspecified)
    if identifies and not (address.is_multicast or _is_network(text, start, end)):
        yield Span(start, end)
