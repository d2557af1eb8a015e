"""Addresses of machines.

An address that names one machine in the world points to whoever uses it. Loopback, private, link-local, multicast and
reserved ones are the same everywhere, and the number of a version looks like one: neither counts. Those set aside for
documentation count, since whoever writes them means an address of the other kind.
"""

import ipaddress
from collections.abc import Iterator

import re2

from router.classify.detector import Form, Span
from router.classify.sensitivity.identifiers.surroundings import trimmed, whole


def _octet(*left_out: int, last: int = 255) -> str:
    return "(?:" + "|".join(str(octet) for octet in range(last + 1) if octet not in left_out) + ")"


_OCTET = _octet()
_FIRST_TWO = rf"(?:{_octet(0, 10, 127, 172, 192, last=223)}\.{_OCTET}|172\.{_octet(*range(16, 32))}|192\.{_octet(168)})"
"""Private and reserved ones are no candidates at all: a log may be full of them."""
_V6 = r"(?i)(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|[23][0-9a-f]{3}:(?:[0-9a-f]{0,4}:){1,6}[0-9a-f]{0,4}"
_VERSION = re2.compile(
    r"(?i)(?:\b|[_-])(?:(?:v|ver|releases?|build|rev|revision|firmware|fw|software|driver|patch|kernel|oid|section|chapter"
    r"|clause|kapitel|abschnitt|verze|verzió|wersja|versie|versi|sürüm|phiên bản|\w*vers[ií]?[oóã]\w*"
    r"(?: (?:number|string|no\.?|id))?)\b|objectidentifier\()"
    r"[\s:=#(\"'`*|>,.]*(?:is )?[\"']?$"
    r"|(?:верс\pL*|έκδοση|إصدار|版本|バージョン|버전|संस्करण|§)[\s:=：]*$"
    r"|(?:[0-9a-z]-|[a-z]/|[0-9a-z]/[0-9a-z._-]+:|[=~<>!]=|[~^]|@)[\s:]*$"
)
_BEFORE = 32
_BUILT = re2.compile(r"(?i)^(?:[-+._ ]?(?:rc|alpha|beta|dev|snapshot|final)\b|\)? \(?build\b)")
_DECIMAL, _NEXT = re2.compile(r"(?:^|[^0-9.])\d*\.\d+[ ,]$"), re2.compile(r"[ ,-]\.?\d")
"""Around two numbers of a drawing that are written without a gap: "3.51.98.32"."""
_LENGTH = re2.compile(r"/\d{1,3}\b")
_DOCUMENTS = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
_HEX = frozenset("0123456789abcdefABCDEF")


def _v4(text: str, start: int, end: int) -> Iterator[Span]:
    start, end = trimmed(text, start, end)
    before, after = text[max(0, start - _BEFORE) : start], text[end : end + _BEFORE]
    drawn = _DECIMAL.search(before) and _NEXT.match(after)
    if _alone(text, start, end) and not (drawn or _VERSION.search(before) or _BUILT.search(after)):
        yield from _names(text, start, end)


def _alone(text: str, start: int, end: int) -> bool:
    """What follows may be a port or a range, but not one more number."""
    return text[start - 1 : start] != "." and not (text[end : end + 1] == "." and text[end + 1 : end + 2].isalnum())


def _v6(text: str, start: int, end: int) -> Iterator[Span]:
    start, end = trimmed(text, start, end)
    before = text[max(0, start - 2) : start]
    if not (before[-1:] == ":" and before[0] in _HEX) and text[end : end + 1] != ":":
        yield from _names(text, start, end)


def _mac(text: str, start: int, end: int) -> Iterator[Span]:
    """Fingerprints of keys go on, byte by byte."""
    start, end = trimmed(text, start, end)
    mark = text[start + 2]
    if not (text[start - 1 : start] == mark or (text[end : end + 1] == mark and text[end + 1 : end + 2] in _HEX)):
        yield Span(start, end)


def _is_network(text: str, start: int, end: int) -> bool:
    """Many machines: no bit is left for one of them."""
    length = _LENGTH.match(text[end : end + 5])
    try:
        network = ipaddress.ip_network(text[start:end] + (length[0] if length else ""))
    except ValueError:
        return False
    return network.num_addresses > 1


def _names(text: str, start: int, end: int) -> Iterator[Span]:
    try:
        address = ipaddress.ip_address(text[start:end])
    except ValueError:
        return
    if address.version == 4:  # the sixth version's local addresses are random, and so as telling as any
        counts = address.is_global or any(address in network for network in _DOCUMENTS)
    else:
        counts = not (address.is_loopback or address.is_link_local or address.is_unspecified)
    if counts and not (address.is_multicast or _is_network(text, start, end)):
        yield Span(start, end)


FORMS = (
    Form("ip", whole(rf"{_FIRST_TWO}(?:\.{_OCTET}){{2}}"), _v4),
    Form("ip", whole(_V6), _v6),
    Form("mac", whole(r"(?i)[0-9a-f]{2}(?:(?::[0-9a-f]{2}){5}|(?:-[0-9a-f]{2}){5})"), _mac),
)
