"""Names of people in a text: word lists, cues around them, places that are none."""

import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import takewhile

import re2

from router.classify.deep.names import Entity, Named

# Words that are names: lists of first names and surnames, and how surnames end; no accents, lower case.

_LETTERS = str.maketrans({"ł": "l", "ø": "o", "ß": "ss", "ı": "i", "đ": "d", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"})
"""Letters with a mark that Unicode does not take apart."""
_PARTS = re2.compile(r"[-'’]")
_ENDING = re2.compile(
    r"\w{2,}(?:ovic|evic|ovich|evich|owicz|ewicz|[wnd]ski|dzki|cki|[wn]ska|cka|czyk|czak|chuk|enko|skaya|sky"
    r"|[lmnrtzdbkh]ova?|[iye]eva?|ss[eo]n|[adklnrt]sen|dottir|poulos|[td]akis|[ln]idis|iadis|escu|eanu|oglu|shvili|adze"
    r"|[aioe]nen|mann|stein|berger|bauer|m[ae][iy]er|hofer|quist|qvist|gren|[nrdt]ez|swamy|murthy|jee|nathan|pillai"
    r"|kumar|singh|moto|mura|naka|[bh]ashi|shita|guchi|zaki|uchi|[az]awa|elli|[au]cci|etti|i?ello|eschi|aglia|stra"
    r"|huizen|unga|wala|were|yemi)"
)
"""Of surnames of Europe and Asia; towns and common words that end so are not meant: look at what stands beside."""
_COMMON = frozenset(
    ("spaghetti", "confetti", "libretto", "liechtenstein", "othello", "umbrella", "whisky", "husky", "risky", "tricky")
)


@cache
def first_names() -> frozenset[str]:
    """Of the United States (census of 1990, public domain) and of other countries; common words are left out."""
    return _listed("first_names.txt")


@cache
def surnames() -> frozenset[str]:
    """The most common ones of the census of 1990 and of other countries; without words, towns and makers."""
    return _listed("surnames.txt")


def plain(word: str) -> str:
    """As in the lists: without genitive, accents and capitals."""
    bare = word.removesuffix("'s").removesuffix("’s").casefold().translate(_LETTERS)
    return "".join(one for one in unicodedata.normalize("NFD", bare) if not unicodedata.combining(one))


def is_first(word: str) -> bool:
    """One of the list, or two of them with a hyphen."""
    bare = plain(word)
    return bare in first_names() or ("-" in bare and _PARTS.split(bare)[0] in first_names())


def is_surname(word: str) -> bool:
    """Of the list, or that ends as surnames do; each part of a double name counts."""
    bare = plain(word)
    return any(one in surnames() or _ends(one) for one in (bare, *_PARTS.split(bare)))


def _ends(bare: str) -> bool:
    return bare not in _COMMON and _ENDING.fullmatch(bare) is not None


def _listed(file: str) -> frozenset[str]:
    text = files("router.classify.deep").joinpath(file).read_text("utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith("#"))


# What announces a person, whatever the name is: titles, phrases, kin, fields, signatures, and what only people do.

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


# What bears the name of a person and is none: streets, towns, companies, houses.

_REACH = 40
"""Characters beside a name that tell."""
_PLACES_WORD = r"\p{Lu}[\p{L}\p{M}'’-]*"
_PLACES_AFTER = re2.compile(
    rf"(?:[ ]+{_PLACES_WORD})*?[ ]+"
    r"(?:St|Street|Road|Rd|Ave|Avenue|Lane|Ln|Drive|Dr|Square|Court|Way|Path|Terrace|Gardens|Hwy|Highway"
    r"|Blvd|Boulevard|Crescent|Close|Park|Parkway|Place|Airport|Hall|Bridge|Station|Beach|River|Valley|County|City|Island"
    r"|Straße|Strasse|Str|Weg|Platz|Allee|Gasse|gate|gata|vei|veien)\b|[ ]+\d+\w?(?:[\s,]|$)"
)
_PLACES_BEFORE = re2.compile(
    r"(?:\d[A-Za-z]?|\b(?:New|North|South|East|West|Lake|Port|Saint|San|Santa|St\.?|Mount|Mont|Fort|[Vv]ia|[Rr]ue|[Aa]venue"
    r"|[Aa]venida|Avda\.?|[Cc]alle|C/|[Pp]laza|[Pp]iazza|Rua|ul\.|Aleja|Stradone|Piazzetta|Quai|Place|Impasse|City of"
    r"|Flat|Suite|Apt\.?|P\.?O\.?))[ ]+$"
)
_COMPANY = re2.compile(
    rf"(?:[ ]+{_PLACES_WORD})*?,?[ ]+(?:Inc|Ltd|LLC|LLP|PLC|GmbH|AG|SA|SpA|NV|BV|AB|Oy|KG"
    r"|Corp|Corporation|Company|Co|Limited"
    r"|Bank|Group|Holdings?|Partners|Properties|Industries|Hotel|Hospital|Clinic|University|College|School|Institute"
    r"|Foundation|Museum|Church|Cathedral|Stadium|Prize|Award|Insurance|Pharmaceuticals|Systems|Motors|Stores?|Airlines"
    r"|Technologies|Consulting|Associates|Sons|Brothers|Bros)\b|[ ]*(?:&|and Sons\b)"
)
_AT_COMPANY = re2.compile(r"(?:&|\b(?:University|Bank|Hotel|School|House) of)[ ]+$")


def is_place(text: str, start: int, end: int) -> bool:
    """A street or a town that is named after somebody."""
    return (
        _PLACES_BEFORE.search(_before(text, start)) is not None
        or _PLACES_AFTER.match(_after(text, start, end)) is not None
    )


def is_company(text: str, start: int, end: int) -> bool:
    """A company or a house that is named after somebody."""
    return _AT_COMPANY.search(_before(text, start)) is not None or _COMPANY.match(_after(text, start, end)) is not None


def _before(text: str, start: int) -> str:
    return text[max(0, start - _REACH) : start]


def _after(text: str, start: int, end: int) -> str:
    """From the end of its first word on."""
    first = text.find(" ", start, end)
    return text[first if first > 0 else end : end + _REACH]


# Persons whom the model overlooks: by what announces a name, and by common first names and surnames.

_WORDS = re2.compile(r"[^ ]+")
_REVERSED = re2.compile(r"(?m)(?:^|[:;>\"][ ]?|\bunder )((\p{Lu}[\p{L}\p{M}'’-]+),[ ]?(\p{Lu}[\p{L}\p{M}'’-]+))")
_CAPITAL = re2.compile(r"\b\p{Lu}")
_ARTICLES = 8
"""Characters of the longest article, with what stands before it."""
_ARTICLE = re2.compile(
    r"(?i)(?:^|\W)(?:the|an?|der|die|das|den|dem|am|im|ein|eine|unser|le|la|les|un|une|el|los|las|il|lo)[ ]$"
)
_DIGIT = re2.compile(r"\d")


def people(text: str) -> Iterator[Named]:
    """Spans may overlap one another and those of the model."""
    for start, end in (*announced(text), *_reversed(text), *_people_listed(text)):
        if not is_place(text, start, end) and not is_company(text, start, end):
            yield Named(Entity.PERSON, start, end)


def rightly(text: str, one: Named) -> Named | None:
    """What the model took for a person: as what it is, None where it names nothing."""
    if one.entity is not Entity.PERSON:
        return one
    words = text[one.start : one.end]
    if _DIGIT.search(words) or is_place(text, one.start, one.end):
        return Named(Entity.LOCATION, one.start, one.end)
    if is_company(text, one.start, one.end):
        return Named(Entity.ORGANISATION, one.start, one.end)
    return None if is_nobody(words) or is_order(text, one.start, one.end) or _is_thing(text, one) else one


def _is_thing(text: str, one: Named) -> bool:
    """Without a capital, or one word after an article, that is on no list."""
    words = text[one.start : one.end]
    if _CAPITAL.search(words) is None:
        return True
    single = " " not in words and not is_first(words) and not is_surname(words.removesuffix("s"))
    return single and _ARTICLE.search(text[max(0, one.start - _ARTICLES) : one.start]) is not None


def _reversed(text: str) -> Iterator[tuple[int, int]]:
    """`Surname, First`."""
    for match in _REVERSED.finditer(text):
        if is_first(match.group(3)):
            yield match.span(1)


def _people_listed(text: str) -> Iterator[tuple[int, int]]:
    """From the first word of a run of capitalised words that is a name to the end of the run."""
    for run in NAME.finditer(text):
        start, end = run.span()
        if acts(text, start, end):
            yield start, end
        for word in _WORDS.finditer(run.group()):
            if is_nobody(word.group()) or not (is_first(word.group()) or is_surname(word.group())):
                continue
            if not is_order(text, start + word.start(), end):
                yield start + word.start(), end
            break
