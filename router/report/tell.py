"""What others named (tags, models, sessions, tools) as text that is safe to look at, wherever it is shown."""

import unicodedata

_KEPT = frozenset("\u200c\u200d")
"""Joiners: scripts and emoji need them, and they hide nothing."""
_HIDDEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs", "Co"))
"""General categories of characters that act on a terminal or a page instead of being seen: controls, formats
(directions, invisible tags), breaks, surrogates, private use. https://www.unicode.org/reports/tr44/#General_Category"""


def shown(text: str) -> str:
    """Every character that would not be seen is written as an escape: a line break as \\n, U+202E as \\u202e."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(one: str) -> str:
    hidden = unicodedata.category(one) in _HIDDEN and one not in _KEPT
    return one.encode("unicode_escape").decode() if hidden else one
