"""What announces a person, whatever the name is: titles, phrases, kin, fields, signatures, and what only people do."""

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
_ROLE = "customer|client|patient|employee|tenant|author|owner|manager|cardholder|beneficiary|passenger|applicant"
_FIELD = (
    r"(?:(?:full|first|last|given|family|sur|fore|middle|maiden|contact|customer|client|patient|employee|holder"
    r"|user|display|legal|account|owner|sender|recipient|birth)?[ _-]?name|surname|forename|vor-?name|nachname"
    r"|familienname|prénom|nom|nombre|apellidos?|cognome|imię|nazwisko|naam|achternaam|navn|namn)"
)
_OWN_FIELD = (
    r"(?:(?:full|first|last|given|family|sur|fore|middle|maiden|contact|customer|patient|employee|holder|legal)"
    r"[ _-]?name|forename)"
)
"""Fields that only persons have: products and tools have a `name` too."""
_SOMEBODY = (
    rf"(?:{_ROLE}|assignee|reporter|contact(?:[ _]person)?|payee|claimant|insured|signatory|guardian"
    r"|emergency[ _]contact|candidate|guest|student|attn|attention|from|to|cc|bcc|reply-to"
    r"|(?:signed|approved)(?:[ ]by)?|(?:prepared|reviewed|written|directed)[ ]by"
    r"|empfänger|absender|ansprechpartner|kunde|kundin|patientin|ship(?:ped)?[ ]to)"
)
_KIN = (
    rf"(?:{_ROLE}|guest|student|wife|husband|son|daughter|brother|sister|mother|father|mom|mum|dad|uncle|aunt|cousin|nephew|niece"
    r"|partner"
    r"|grand(?:mother|father|son|daughter)|fiancée?|girlfriend|boyfriend|friend|neighbou?r|landlord|landlady|boss"
    r"|colleague|roommate|kid|child|baby|teacher|doctor|dentist|lawyer|accountant|assistant|driver|witness|nurse"
    r"|detective|officer|judge|user named|somebody called|someone called)"
)
_DOES = (
    r"(?:said|says|told|tells|asked|asks|replied|replies|answered|shouted|whispered|wrote|writes|thinks|thought|believes"
    r"|wants|wanted|lives|lived|married|resigned|complained|complains|refused|agreed|disagreed?|signed|speaks|spoke"
    r"|called|phoned|knows|knew|feels|felt|loves|loved|hates|died|was born|began|met|moved|smiled|laughed|cried|nodded"
    r"|drove|drives|owes|taught|teaches|repaired|returned|requested|missed|broke (?:his|her)|has been (?:off|ill|sick)"
    r"|had (?:given|told|asked|said)|is (?:my|his|her|your|our)|took (?:his|her))"
)
"""What persons do, and companies seldom."""
_ROOM = re2.Options()
_ROOM.max_mem = 64 << 20
"""Bytes for the automaton of a long pattern: with less it is slower."""
_BEFORE = re2.compile(
    rf"(?:\b(?:[Mm]r|[Mm]rs|[Mm]s|[Mm]x|[Dd]r|[Pp]rof)\b\.?[ ]+"
    r"|\b(?:Miss|Sir|Madam|Herrn?|Frau|Monsieur|Madame|Mme|Señora?|Sra?\.|Signora?|Pan|Pani|Professor|Detective|Judge"
    r"|Nurse|Inspector|Sergeant|Captain|Senator|Reverend|née|c/o|[Dd]ear|[Hh]i|[Hh]ello|I am|I'm|I’m|[Cc]alls? me)[ ]+"
    r"|\b[Nn]ame(?:d| is|:)(?: (?:him|her|them))?,?[ ]+|\b(?:speaking with|[Tt]his is"
    r"|(?:was|is|be) (?:called|named))[ ]+"
    rf"|\b(?:[Mm]y|[Hh]is|[Hh]er|[Oo]ur|[Tt]heir|[Yy]our|[Tt]he|[Aa])[ ]+(?:\w+[ ])?{_KIN},?[ ]+"
    r"|\b(?:told|[Tt]ell|met|[Tt]hank(?:ed)?|[Aa]sk|asked|married(?: to)?|hired|interviewed|[Tt]rust|scolded|shouted at"
    r"|[Ss]igned,?(?: by)?|referred|[Ee]mail|[Ii]nvite|[Rr]emind)[ ]+"
    r"|[\"”’,][ ](?:said|replied|asked|answered|whispered|shouted)[ ]+|\bTODO\("
    r"|(?m:^)[ ]*(?:[Yy]ours|[Bb]est|[Kk]ind|[Ww]arm|[Ss]incerely|[Rr]egards|[Tt]hanks|[Cc]heers|[Cc]ordialement|[Mm]it"
    r"|[Vv]iele|[Ss]aludos|[Ss]igned|[Mm]et vriendelijke)\b[\p{L} ]{0,24}[,!]?\s*\n(?:--)?\s*|(?m:^)--[ ]?\n"
    r")(\p{Lu})",
    _ROOM,
)
_FIELDS = re2.compile(
    rf"(?i)(?:(?:^|[\n,;{{|])[ ]*-?[\"]?{_SOMEBODY}[\"]?[ ]?[:=][ ]*[\"]?"
    rf"|<(?:{_FIELD}|{_SOMEBODY})>|\"{_OWN_FIELD}\"[ ]?:[ ]*\""
    r"|\b(?:attn|cardholder|payee|passenger|author)[ :=\"]+)(\p{L})",
    _ROOM,
)
_NAMES = re2.compile(rf"(?i)\b{_FIELD}[ ]?(?:is|:|=|-)[ ]*(\p{{L}})", _ROOM)
_GREETING = re2.compile(r"(?i)\bhi,? i['’]?m[ ]+(\p{L}{3,})[ ]and\b")
_AFTER = re2.compile(rf"\"?[ ]?<[^<>@\s]+@[^<>\s]+>|(?:,? and {_WORD})?[ ]+(?:has[ ]|have[ ])?{_DOES}\b")
_STARTS = re2.compile(r"(?:^|[.!?\n“”\"][ ]*|, |\b(?:and|that|when|if|because|but) )$")
_FROM = re2.compile(r"^\w+(?:ese|ish|[iea]an|ani)$")
_IMPERATIVE = re2.compile(r"[ ](?:the|an?|all|every|this|that|these|no|any|your|my|up|us)\b")
_NOBODY = frozenset(
    """
    a accounts add address admin afraid agent all also american an and anonymous april are as assistant at august
    been being bible billing board both british but by can chief chinese city client clients colleague colleagues
    company congress could country customer customers das data date december dem den department deploy der des did
    die do does dr dutch ein eine el email english error european everybody everyone export february finance first
    fix for french frequently friday friend friends from general german git glad gli god happy he head her here
    hiring his how hr human i if il import in install int is ist it italian january japanese july june junior just
    la las last le legal les lo los madam management march marketing may miss monday mr mrs ms must my name neither
    nicht no nobody none not note nothing november null number october of on open or our parliament people phone
    please polish product prof reception return run russian sales saturday self senior september server service she
    should sir so somebody someone something sometimes sorry spanish staff str sunday support sure surname system
    team that the their then there these they this those thursday title to todo tuesday turkish un und une unknown
    upgrade use user users very void warning was we wednesday were what when where which who why will with world
    would yes you your
    """.split()  # noqa: SIM905 - so many words are read as text
)
"""First words of what stands where a name would and is none."""


def announced(text: str) -> Iterator[tuple[int, int]]:
    """Names by what stands before them."""
    for cue in (_BEFORE, _FIELDS, _NAMES):
        for match in cue.finditer(text):
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
