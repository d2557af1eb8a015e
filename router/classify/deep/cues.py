"""What announces a person, whatever the name is: titles, phrases, kin, fields, signatures, verbs that only people do."""

from collections.abc import Iterator
from itertools import takewhile

import re2

from router.classify.deep.lexicon import is_first, is_surname, plain

_WORD = r"\p{Lu}[\p{L}\p{M}'’-]*[\p{L}\p{M}]"
_OF = r"(?:(?:van|von|der|den|de|di|del|la|bin|al|el|dos|da|ter|af)[ ]+|al-|el-)*"
NAME = re2.compile(rf"(?:\p{{Lu}}\.[ ]?)*{_WORD}(?:[ ]+(?:\p{{Lu}}\.[ ]?)*{_OF}{_WORD}){{0,3}}")
"""Capitalised words, with initials and what stands before surnames."""
_ANY = re2.compile(r"[\p{L}\p{M}][\p{L}\p{M}'’.-]*[\p{L}\p{M}](?: [\p{L}\p{M}][\p{L}\p{M}'’.-]*){0,2}")
"""Words of a field that holds a name: capitals are not needed."""
_LONGEST = 80
"""Characters of a name, and of what stands beside it."""
_FIELD = (
    r"(?:(?:full|first|last|given|family|sur|fore|middle|maiden|contact|customer|client|patient|employee|holder|user|display"
    r"|legal|account|owner|sender|recipient|birth)?[ _-]?name|surname|forename|vor-?name|nachname|familienname|prénom|nom"
    r"|nombre|apellidos?|cognome|imię|nazwisko|naam|achternaam|navn|namn)"
)
_OWN_FIELD = r"(?:(?:full|first|last|given|family|sur|fore|middle|maiden|contact|customer|patient|employee|holder|legal)[ _-]?name|forename)"
"""Fields that only persons have: products and tools have a `name` too."""
_SOMEBODY = (
    r"(?:customer|client|patient|employee|tenant|author|assignee|reporter|owner|contact(?:[ _]person)?|cardholder"
    r"|beneficiary|payee|passenger|applicant|claimant|insured|signatory|guardian|emergency[ _]contact|candidate|guest"
    r"|student|manager|attn|attention|from|to|cc|bcc|reply-to|signed(?:[ ]by)?|approved(?:[ ]by)?|prepared[ ]by"
    r"|reviewed[ ]by|written[ ]by|directed[ ]by|empfänger|absender|ansprechpartner|kunde|kundin|patientin|shipped?[ ]to)"
)
_KIN = (
    r"(?:wife|husband|son|daughter|brother|sister|mother|father|mom|mum|dad|uncle|aunt|cousin|nephew|niece|grand(?:mother|father"
    r"|son|daughter)|partner|fiancée?|girlfriend|boyfriend|friend|neighbou?r|landlord|landlady|boss|colleague|roommate|kid"
    r"|child|baby|teacher|doctor|dentist|lawyer|accountant|assistant|manager|client|patient|tenant|driver|witness|employee"
    r"|customer|nurse|detective|officer|judge|user named|somebody called|someone called)"
)
_DOES = (
    r"(?:said|says|told|tells|asked|asks|replied|replies|answered|shouted|whispered|wrote|writes|thinks|thought|believes"
    r"|wants|wanted|lives|lived|married|resigned|complained|complains|refused|agreed|disagreed?|signed|hat|speaks|spoke"
    r"|called|phoned|knows|knew|feels|felt|loves|loved|hates|died|was born|began|met|moved|smiled|laughed|cried|nodded"
    r"|drove|drives|owes|taught|teaches|repaired|returned|requested|missed|broke (?:his|her)|has been (?:off|ill|sick)"
    r"|had (?:given|told|asked|said)|is (?:my|his|her|your|our)|took (?:the|his|her)|will be late)"
)
_TO = r"(?:[Tt]old|[Tt]ell|[Mm]et|[Tt]hank(?:ed)?|[Aa]sk(?:ed)?|[Mm]arried|[Hh]ired|[Ii]nterviewed|[Tt]rust|[Ss]colded|shouted at)"
_ROOM = re2.Options()
_ROOM.max_mem = 64 << 20
"""Bytes for the automaton of a long pattern: with less it is slower."""
_BEFORE = re2.compile(
    rf"(?:\b(?:[Mm]r|[Mm]rs|[Mm]s|[Mm]x|[Dd]r|[Pp]rof)\b\.?[ ]+"
    r"|\b(?:Miss|Sir|Madam|Herrn?|Frau|Monsieur|Madame|Mme|Señora?|Sra?\.|Signora?|Pan|Pani|Professor|Detective|Judge"
    r"|Nurse|Inspector|Sergeant|Captain|Senator|Reverend|née|c/o|[Dd]ear|[Hh]i|[Hh]ello|I am|I'm|I’m|[Cc]alls? me)[ ]+"
    r"|\b[Nn]ame(?:d| is|:)(?: (?:him|her|them))?,?[ ]+|\b(?:speaking with|[Tt]his is|(?:was|is|be) (?:called|named))[ ]+"
    rf"|\b(?:[Mm]y|[Hh]is|[Hh]er|[Oo]ur|[Tt]heir|[Yy]our|[Tt]he|[Aa])[ ]+(?:\w+[ ])?{_KIN},?[ ]+"
    r"|\b(?:[Tt]old|[Tt]ell|[Mm]et|[Tt]hank(?:ed)?|[Aa]sk(?:ed)?|[Mm]arried(?: to)?|[Hh]ired|[Ii]nterviewed|[Tt]rust"
    r"|[Ss]colded|[Ss]houted at|[Ss]igned,?(?: by)?|[Rr]eferred)[ ]+"
    r"|[\"”’,][ ](?:said|replied|asked|answered|whispered|shouted)[ ]+|\bTODO\(|(?:^|\s)@"
    r"|(?m:^)[ ]*(?:[Yy]ours|[Bb]est|[Kk]ind|[Ww]arm|[Ss]incerely|[Rr]egards|[Tt]hanks|[Cc]heers|[Cc]ordialement|[Mm]it"
    r"|[Vv]iele|[Ss]aludos|[Ss]igned|[Mm]et|--)[\p{L} ]{0,24}[,!]?\s*\n(?:--)?\s*"
    r")(\p{Lu})",
    _ROOM,
)
_FIELDS = re2.compile(
    rf"(?i)(?:(?:^|[\n,;{{|])[ ]*-?[\"]?{_SOMEBODY}[\"]?[ ]?[:=][ ]*[\"]?"
    rf"|<(?:{_FIELD}|{_SOMEBODY})>|\"{_OWN_FIELD}\"[ ]?:[ ]*\"|\b(?:attn|cardholder|payee|passenger|author)[ :=\"]+)(\p{{L}})",
    _ROOM,
)
_NAMES = re2.compile(rf"(?i)\b{_FIELD}[ ]?(?:is|:|=|-)[ ]*(\p{{L}})", _ROOM)
_GREETING = re2.compile(r"(?i)\bhi,? i['’]?m[ ]+(\p{L}{3,})[ ]and\b")
_AFTER = re2.compile(rf"\"?[ ]?<[^<>@\s]+@[^<>\s]+>|(?:,? and {_WORD})?[ ]+(?:has[ ]|have[ ])?{_DOES}\b")
_STARTS = re2.compile(r"(?:^|[.!?\n“”\"][ ]*|, |\b(?:and|that|when|if|because|but) )$")
_FROM = re2.compile(r"^\w+(?:ese|ish|[iea]an|ani)$")
_IMPERATIVE = re2.compile(r"[ ](?:the|an?|all|every|this|that|these|no|any|your|my|up|us)\b")
_NOBODY = frozenset(
    ["mr", "mrs", "ms", "dr", "prof", "miss", "customer", "customers", "client", "clients", "team", "sir", "madam", "support", "service", "sales", "hiring", "everyone", "everybody", "all", "friends", "friend", "colleague", "colleagues", "legal", "marketing", "finance", "management", "reception", "accounts", "billing", "department", "staff", "human", "hr", "it", "admin", "user", "users", "agent", "assistant", "system", "server", "the", "a", "an", "my", "your", "our", "his", "her", "their", "this", "that", "these", "those", "it", "he", "she", "they", "we", "you", "i", "not", "no", "yes", "please", "unknown", "anonymous", "none", "null", "nobody", "congress", "parliament", "god", "world", "there", "here", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december", "and", "or", "but", "if", "when", "then", "what", "who", "why", "how", "where", "which", "to", "from", "of", "in", "on", "at", "by", "for", "with", "as", "so", "very", "just", "also", "is", "are", "was", "were", "been", "being", "do", "does", "did", "will", "would", "can", "could", "should", "must", "name", "first", "last", "surname", "company", "board", "head", "chief", "general", "product", "und", "der", "die", "das", "den", "dem", "ein", "eine", "ist", "nicht", "le", "la", "les", "un", "une", "des", "el", "los", "las", "il", "lo", "gli", "sorry", "happy", "sure", "glad", "afraid", "add", "upgrade", "install", "deploy", "git", "run", "open", "export", "import", "use", "fix", "todo", "note", "warning", "error", "str", "int", "self", "return", "void", "bible", "german", "french", "english", "spanish", "italian", "polish", "dutch", "turkish", "russian", "chinese", "japanese", "american", "british", "european", "email", "phone", "address", "city", "country", "date", "number", "title", "sometimes", "people", "both", "neither", "nothing", "something", "somebody", "someone", "data"]
)
"""First words of what stands where a name would and is none."""


def announced(text: str) -> Iterator[tuple[int, int]]:
    """Names by what stands before them."""
    for cue in (_BEFORE, _FIELDS):
        for match in cue.finditer(text):
            yield from _whole(NAME, text, match.start(1))
    for match in _NAMES.finditer(text):
        at = match.start(1)
        yield from _whole(NAME, text, at) if text[at].isupper() else _small(text, at)
    for match in _GREETING.finditer(text):
        yield from _whole(_ANY, match.group(1), 0, match.start(1))


def acts(text: str, start: int, end: int) -> bool:
    """What follows is what only persons do, or have: a verb of saying, an address in brackets."""
    before, after = text[max(0, start - _LONGEST) : start], text[end : end + _LONGEST]
    if is_nobody(text[start:end]):
        return False
    return _AFTER.match(after) is not None and (_STARTS.search(before) is not None or "<" in after[:3])


def is_order(text: str, start: int, end: int) -> bool:
    """A verb where a sentence starts, that would be a name elsewhere: `Bill the customer`."""
    return _STARTS.search(text[max(0, start - _LONGEST) : start]) is not None and _follows(text, end)


def is_nobody(name: str) -> bool:
    """Begins with a word that no person is called by."""
    return plain(name.split()[0].rstrip(",:.")) in _NOBODY


def _follows(text: str, end: int) -> bool:
    return _IMPERATIVE.match(text[end : end + _LONGEST]) is not None


def _small(text: str, at: int) -> Iterator[tuple[int, int]]:
    """A name without capitals: words up to the first that is none, if one of them is on the lists."""
    for start, end in _whole(_ANY, text, at):
        words = list(takewhile(lambda word: not is_nobody(word), text[start:end].split()))
        if any(is_first(word) or is_surname(word) for word in words):
            yield start, start + len(" ".join(words))


def _is_people(name: str) -> bool:
    """Where somebody is from: `I am Spanish`."""
    return _FROM.search(name) is not None and not is_first(name)


def _whole(words: re2._Regexp, text: str, at: int, offset: int = 0) -> Iterator[tuple[int, int]]:
    name = words.match(text[at : at + _LONGEST])
    if name is not None and not is_nobody(name.group()) and not _is_people(name.group()):
        yield offset + at, offset + at + name.end()
