"""Structured identifiers: recall and precision of each kind, over sentences that say what it is and some that don't."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct, structs

from bench.sensitivity.figures import Figure, share
from bench.sensitivity.forms import IDENTIFIER_KINDS, is_kind
from bench.sensitivity.sentences import IDENTIFIERS, Gaps, Text, filled, presidio, templates
from bench.sensitivity.sight import CONTENT, Sight, said
from bench.sensitivity.split import Split, chance, half
from bench.sensitivity.texts import blocks
from bench.sensitivity.values import Maker, Value, ids
from bench.sensitivity.values.phones import unseen
from router.types.request import Finding

RECALL, PRECISION = 0.97, 0.95
MAKERS: dict[str, Maker] = {
    **{kind: maker for kind, maker in IDENTIFIERS.values()},
    "uk_nhs": ids.uk_nhs,
    "uk_nino": ids.uk_nino,
    "de_tax": ids.de_tax,
    "fr_nir": ids.fr_nir,
    "es_id": ids.es_id,
    "it_cf": ids.it_cf,
    "in_aadhaar": ids.in_aadhaar,
    "nl_bsn": ids.nl_bsn,
    "ca_sin": ids.ca_sin,
    "pl_pesel": ids.pl_pesel,
    "br_cpf": ids.br_cpf,
}
PLAIN = ("card", "iban", "email", "ip")
"""They say themselves what they are: without context they are promised all the same."""


UNSEEN = "unseen"
"""Notations that the dev half does not have: telephones of other countries. Reported apart."""


class Seen(Struct, frozen=True):
    """A text, and what was found in it."""

    text: Text
    findings: tuple[Finding, ...]


class Miss(Struct, frozen=True):
    """For the dev half only: what kind of value in what kind of sentence; never the value."""

    kind: str
    notation: str
    source: str


def texts(split: Split, each: int) -> Iterator[Text]:
    """`each`: positives of a kind from presidio-evaluator's sentences, where it has some, as many from our own that
    say what it is, and half as many from those that don't."""
    for gap, (kind, _) in IDENTIFIERS.items():
        lines = [line for line in templates(split) if "{{" + gap + "}}" in line]
        yield from _enough(presidio(split, chance(split, "presidio", kind), lines), kind, each)
    for kind in MAKERS:
        yield from _enough(carried(split, kind, kind), kind, each)
        yield from _enough(carried(split, kind, "bare"), kind, each // 2)
    if split is Split.TEST:
        abroad = carried(split, "phone", "phone", unseen)
        yield from (structs.replace(text, source=UNSEEN) for text in _enough(abroad, "phone", each))


def nameless(split: Split, count: int) -> Iterator[Text]:
    """Sentences of presidio-evaluator without an identifier: whatever is found there is wrong."""
    gaps = ["{{" + gap + "}}" for gap in IDENTIFIERS]
    lines = [line for line in templates(split) if not any(gap in line for gap in gaps)]
    return islice(presidio(split, chance(split, "nameless"), lines), count)


def carried(split: Split, kind: str, carriers: str, maker: Maker | None = None) -> Iterator[Text]:
    """Endlessly: a value of the kind in each carrier in turn."""
    draw, make = chance(split, "carried", kind, carriers), maker or MAKERS[kind]
    while True:
        for block in half(blocks("carriers")[carriers], split):
            gaps = Gaps(split, draw)

            def fill(gap: str, gaps: Gaps = gaps) -> tuple[str, Value]:
                if gap == "v":
                    return kind, make(draw)
                return "", gaps(gap)[1]

            yield filled(block, fill, "bare" if carriers == "bare" else "own", carriers != "bare")


def _enough(found: Iterator[Text], kind: str, count: int) -> Iterator[Text]:
    """Until so many of the kind are planted."""
    had = 0
    while had < count:
        text = next(found)
        had += sum(one.kind == kind for one in text.planted)
        yield text


def look(seeing: Sight, every: Iterable[Text]) -> list[Seen]:
    return [Seen(text, seeing.findings(said(text.text))) for text in every]


def figures(seen: Sequence[Seen], goals: bool = True, kinds: Sequence[str] = IDENTIFIER_KINDS) -> Iterator[Figure]:
    for kind in kinds:
        known = [one for one in seen if one.text.source != UNSEEN]
        told = [hit for one in known if one.text.context or kind in PLAIN for hit in _hits(one, kind)]
        bare = [hit for one in seen if not one.text.context for hit in _hits(one, kind)]
        shipped = [hit for one in seen if one.text.source == "presidio-evaluator" for hit in _hits(one, kind)]
        yield share("identifiers", kind, "recall", sum(told), len(told), RECALL if goals else None)
        if shipped:
            yield share("identifiers", kind, "recall, presidio's", sum(shipped), len(shipped))
        if abroad := [hit for one in seen if one.text.source == UNSEEN for hit in _hits(one, kind)]:
            yield share("identifiers", kind, "recall, unseen", sum(abroad), len(abroad))
        if bare:
            yield share("identifiers", kind, "recall, bare", sum(bare), len(bare))
        right, wrong = _found([one for one in seen if one.text.context or kind in PLAIN], kind)
        yield share("identifiers", kind, "precision", right, right + wrong, PRECISION if goals else None)
        right, wrong = _found(seen, kind)
        yield share("identifiers", kind, "precision, with bare", right, right + wrong)


def misses(seen: Iterable[Seen]) -> Iterator[Miss]:
    for one in seen:
        for planted in one.text.planted:
            if planted.kind in MAKERS and not any(
                covers(finding, planted.kind, planted.start, planted.end) for finding in one.findings
            ):
                yield Miss(planted.kind, planted.notation, one.text.source)


def _hits(seen: Seen, kind: str) -> list[bool]:
    """Of each value of the kind: was it found?"""
    return [
        any(covers(finding, kind, planted.start, planted.end) for finding in seen.findings)
        for planted in seen.text.planted
        if planted.kind == kind
    ]


def covers(finding: Finding, kind: str, start: int, end: int) -> bool:
    """Whether it says this kind, and lies on these characters of the message."""
    return is_kind(finding, kind) and finding.path == CONTENT and finding.start < end and start < finding.end


def _found(seen: Iterable[Seen], kind: str) -> tuple[int, int]:
    """Findings of the kind that lie on a planted value of it, and those that don't."""
    right = wrong = 0
    for one in seen:
        for finding in one.findings:
            if is_kind(finding, kind):
                lies = any(
                    planted.kind == kind and covers(finding, kind, planted.start, planted.end)
                    for planted in one.text.planted
                )
                right, wrong = right + lies, wrong + (not lies)
    return right, wrong
