"""What bears the name of a person and is none: streets, towns, companies, houses."""

import re2

_REACH = 40
"""Characters beside a name that tell."""
_WORD = r"\p{Lu}[\p{L}\p{M}'’-]*"
_AFTER = re2.compile(
    rf"(?:[ ]+{_WORD})*?[ ]+"
    r"(?:St|Street|Road|Rd|Ave|Avenue|Lane|Ln|Drive|Dr|Square|Court|Way|Path|Terrace|Gardens|Hwy|Highway"
    r"|Blvd|Boulevard|Crescent|Close|Park|Parkway|Place|Airport|Hall|Bridge|Station|Beach|River|Valley|County|City|Island"
    r"|Straße|Strasse|Str|Weg|Platz|Allee|Gasse|gate|gata|vei|veien)\b|[ ]+\d+\w?(?:[\s,]|$)"
)
_BEFORE = re2.compile(
    r"(?:\d[A-Za-z]?|\b(?:New|North|South|East|West|Lake|Port|Saint|San|Santa|St\.?|Mount|Mont|Fort|[Vv]ia|[Rr]ue|[Aa]venue"
    r"|[Aa]venida|Avda\.?|[Cc]alle|C/|[Pp]laza|[Pp]iazza|Rua|ul\.|Aleja|Stradone|Piazzetta|Quai|Place|Impasse|City of"
    r"|Flat|Suite|Apt\.?|P\.?O\.?))[ ]+$"
)
_COMPANY = re2.compile(
    rf"(?:[ ]+{_WORD})*?,?[ ]+(?:Inc|Ltd|LLC|LLP|PLC|GmbH|AG|SA|SpA|NV|BV|AB|Oy|KG|Corp|Corporation|Company|Co|Limited"
    r"|Bank|Group|Holdings?|Partners|Properties|Industries|Hotel|Hospital|Clinic|University|College|School|Institute"
    r"|Foundation|Museum|Church|Cathedral|Stadium|Prize|Award|Insurance|Pharmaceuticals|Systems|Motors|Stores?|Airlines"
    r"|Technologies|Consulting|Associates|Sons|Brothers|Bros)\b|[ ]*(?:&|and Sons\b)"
)
_AT_COMPANY = re2.compile(r"(?:&|\b(?:University|Bank|Hotel|School|House) of)[ ]+$")


def is_place(text: str, start: int, end: int) -> bool:
    """A street or a town that is named after somebody."""
    return _BEFORE.search(_before(text, start)) is not None or _AFTER.match(_after(text, start, end)) is not None


def is_company(text: str, start: int, end: int) -> bool:
    """A company or a house that is named after somebody."""
    return _AT_COMPANY.search(_before(text, start)) is not None or _COMPANY.match(_after(text, start, end)) is not None


def _before(text: str, start: int) -> str:
    return text[max(0, start - _REACH) : start]


def _after(text: str, start: int, end: int) -> str:
    """From the end of its first word on."""
    first = text.find(" ", start, end)
    return text[first if first > 0 else end : end + _REACH]
