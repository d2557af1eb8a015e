"""Telephone numbers of fifteen countries, as they are written there and abroad."""

from collections.abc import Mapping
from random import Random

from bench.sensitivity.values import Value
from bench.sensitivity.values.draw import mask

_AREAS = (
    "201",
    "212",
    "213",
    "303",
    "305",
    "312",
    "404",
    "415",
    "503",
    "512",
    "602",
    "617",
    "702",
    "718",
    "808",
    "917",
)
_PATTERNS = {
    "US": (
        "(#) Nxx-xxxx",
        "(#) Nxx-xxxx",
        "#-Nxx-xxxx",
        "#-Nxx-xxxx",
        "#.Nxx.xxxx",
        "(#)Nxx-xxxx",
        "# Nxx xxxx",
        "+1 # Nxx xxxx",
        "+1-#-Nxx-xxxx",
        "+1 (#) Nxx-xxxx",
        "1-#-Nxx-xxxx",
        "001-#-Nxx-xxxx",
        "+1#Nxxxxxx",
        "#Nxxxxxx",
        "#-Nxx-xxxx [x]234",
        "(#) Nxx-xxxx e[x]t. 56",
    ),
    "UK": (
        "07[45789]xx xxxxxx",
        "07[45789]xx xxx xxx",
        "07[45789]xxxxxxxx",
        "+44 7[45789]xx xxxxxx",
        "+447[45789]xxxxxxxx",
        "020 7[0123489]xx xxxx",
        "+44 20 7[0123489]xx xxxx",
        "+44 (0)20 7[0123489]xx xxxx",
        "0044 20 7[0123489]xx xxxx",
        "0161 [234]xx xxxx",
        "(020) 7[0123489]xx xxxx",
    ),
    "DE": (
        "+49 30 [2345678]xxxxxxx",
        "030 [2345678]xxxxxxx",
        "030/[2345678]xxxxxxx",
        "+49 (0)30 [2345678]xxxxxxx",
        "0049 30 [2345678]xxxxxxx",
        "+49 17[069] xxxxxxx",
        "017[069] xxxxxxx",
        "017[069]-xxxxxxx",
        "+4917[069]xxxxxxx",
        "017[069]xxxxxxx",
        "089 / [2345678]xx xx xx",
        "+49-89-[2345678]xxxxxx",
        "+49 (89) [2345678]xx xxx",
    ),
    "FR": (
        "0[67] xx xx xx xx",
        "0[1234] [4567]x xx xx xx",
        "+33 [67] xx xx xx xx",
        "0[67].xx.xx.xx.xx",
        "0[67]xxxxxxxx",
        "+33[67]xxxxxxxx",
        "+33 (0)[67] xx xx xx xx",
        "0033 [67] xx xx xx xx",
        "0[67]-xx-xx-xx-xx",
    ),
    "ES": (
        "6[123456]x xxx xxx",
        "+34 6[123456]x xxx xxx",
        "6[123456]x xx xx xx",
        "+346[123456]xxxxxxx",
        "91 [2345]xx xx xx",
    ),
    "IT": ("3[3489]x xxx xxxx", "+39 3[3489]x xxxxxxx", "+39 06 [456]xxx xxxx", "06 [456]xxx xxxx", "3[3489]x-xxxxxxx"),
    "NL": (
        "06-[12345]xxxxxxx",
        "06 [12345]xxx xxxx",
        "+31 6 [12345]xxxxxxx",
        "020-[2345678]xxxxxx",
        "+31 (0)20 [2345678]xx xxxx",
    ),
    "CH": (
        "07[6789] xxx xx xx",
        "+41 7[6789] xxx xx xx",
        "044 [23456]xx xx xx",
        "+41 (0)44 [23456]xx xx xx",
        "0041 7[6789] xxx xx xx",
    ),
    "SE": ("07[036]-xxx xx xx", "+46 7[036] xxx xx xx", "08-[56]xx xxx xx", "+46 (0)8 [56]xx xxx xx", "07[036]xxxxxxx"),
    "IN": ("+91 [6789]xxxx xxxxx", "+91-[6789]xxxxxxxxx", "[6789]xxxxxxxxx", "0[6789]xxxx xxxxx", "+91[6789]xxxxxxxxx"),
    "BR": ("(11) 9[6789]xxx-xxxx", "+55 11 9[6789]xxx-xxxx", "(21) [23]xxx-xxxx", "+55 (11) 9[6789]xxx-xxxx"),
    "JP": ("0[789]0-[12345]xxx-xxxx", "03-[356]xxx-xxxx", "+81 [789]0-[12345]xxx-xxxx", "+81 3 [356]xxx xxxx"),
    "CN": ("13[5678] xxxx xxxx", "+86 13[5678] xxxx xxxx", "13[5678]xxxxxxxx", "+8613[5678]xxxxxxxx"),
    "AU": ("04[0123]x xxx xxx", "(02) 9[23]xx xxxx", "+61 4[0123]x xxx xxx", "+61 2 9[23]xx xxxx"),
    "PL": ("+48 60[1359] xxx xxx", "60[1359]-xxx-xxx", "60[1359] xxx xxx", "22 [456]xx xx xx"),
}
"""`#`: an area code; see `mask`. In the plans of the countries' regulators; not all of these numbers are given out."""


_UNSEEN = {
    "AT": ("+43 664 xxxxxxx", "0664 / xxx xx xx", "01 [58]xx xx xx", "+43 (0)1 [58]xxxxxx"),
    "BE": ("+32 47x xx xx xx", "047x xx xx xx", "02 [2345]xx xx xx", "047x/xx.xx.xx"),
    "DK": ("+45 [23456]x xx xx xx", "[23456]x xx xx xx", "+45[23456]xxxxxxx"),
    "NO": ("+47 [49]xx xx xxx", "[49]xx xx xxx", "+47[49]xxxxxxx"),
    "IE": ("+353 8[5678] xxx xxxx", "08[5678] xxx xxxx", "(01) [2468]xx xxxx"),
    "PT": ("+351 9[1236]x xxx xxx", "9[1236]x xxx xxx", "21x xxx xxx"),
    "MX": ("+52 55 [1258]xxx xxxx", "55 [1258]xxx xxxx", "+52 (55) [1258]xxx-xxxx"),
    "KR": ("010-[2345]xxx-xxxx", "+82 10-[2345]xxx-xxxx", "02-[2345]xx-xxxx"),
    "ZA": ("+27 8[234] xxx xxxx", "08[234] xxx xxxx"),
    "TR": ("+90 53x xxx xx xx", "0 53x xxx xx xx", "(053x) xxx xx xx"),
}
"""Only in the test half."""


def phone(draw: Random, patterns: Mapping[str, tuple[str, ...]] = _PATTERNS) -> Value:
    country = draw.choice(("US", "US", *patterns) if patterns is _PATTERNS else tuple(patterns))
    pattern = draw.choice(patterns[country])
    return Value(mask(draw, pattern.replace("#", draw.choice(_AREAS))), f"{country} {pattern}")


def unseen(draw: Random) -> Value:
    return phone(draw, _UNSEEN)
