"""Addresses on the net: mail and IP."""

import ipaddress
import unicodedata
from random import Random

from bench.sensitivity.values import Value
from bench.sensitivity.values.draw import digits, word

_FIRST = (
    "anna",
    "john",
    "maria",
    "li",
    "noah",
    "sofia",
    "mehmet",
    "priya",
    "olu",
    "jean-luc",
    "o.connor",
    "kasia",
    "h",
)
_LAST = ("smith", "garcia", "mueller", "okafor", "tanaka", "rossi", "kowalska", "nguyen", "van.dijk", "lund", "petit")
_DOMAINS = (
    "gmail.com", "outlook.com", "web.de", "yahoo.co.uk", "proton.me", "acme-corp.io", "mail.uni-koeln.de", "free.fr",
    "hospital.nhs.uk", "sub.mail.company.com.au", "qq.com", "startup.ai", "museum.museum", "x.photography", "gov.br",
    "xn--mnchen-3ya.de", "t-online.de", "163.com", "bbc.co.uk", "student.tue.nl",
)  # fmt: skip


def email(draw: Random) -> Value:
    first, last, domain = draw.choice(_FIRST), draw.choice(_LAST), draw.choice(_DOMAINS)
    how, text = draw.choice(
        (
            ("dot", f"{first}.{last}@{domain}"),
            ("dot", f"{first}.{last}@{domain}"),
            ("joined", f"{first[0]}{last}{digits(draw, 2)}@{domain}"),
            ("tag", f"{first}+{word(draw, 'abcdefgh', 4)}@{domain}"),
            ("underscore", f"{first}_{last}@{domain}"),
            ("capitals", f"{first.title()}.{last.title()}@{domain.upper() if draw.random() < 0.3 else domain.title()}"),
            ("digits", f"{digits(draw, 8)}@{domain}"),
            ("dashes", f"{first}-{last}@{domain}"),
        )
    )
    return Value(text, how)


def ip(draw: Random) -> Value:
    return _v4(draw) if draw.random() < 0.6 else _v6(draw)


def _v4(draw: Random) -> Value:
    """Of the public net: addresses that name no machine outside are nobody's."""
    found = ipaddress.IPv4Address(draw.getrandbits(32))
    return Value(str(found), "v4") if found.is_global and not found.is_multicast else _v4(draw)


def _v6(draw: Random) -> Value:
    prefix = draw.choice((0x2001_0DC0, 0x2A00_1450, 0x2606_4700, 0x2A02_8108, 0x2400_CB00))
    zeros = draw.choice((0, 0, 64, 80))
    found = ipaddress.IPv6Address(prefix << 96 | draw.getrandbits(96 - zeros))
    how, text = draw.choice((("v6", str(found)), ("v6", str(found)), ("v6 long", found.exploded)))
    return Value(text.upper() if draw.random() < 0.1 else text, how)


def plain(text: str) -> str:
    """Letters without their accents, for the mail address of a person."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower().replace(" ", "")
