"""Persons, places and organisations, with the deep tier: presidio-evaluator's sentences and people."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter

from bench.sensitivity.figures import Figure, amount, share
from bench.sensitivity.forms import NAME_KINDS, is_kind
from bench.sensitivity.identifiers import Miss, Seen, covers
from bench.sensitivity.sentences import Text, presidio, templates
from bench.sensitivity.sight import Sight, request, said
from bench.sensitivity.split import Split, chance
from router.classify.ner import NamesReader

RECALL = 0.85
"""Of persons; the rest is reported."""


def texts(split: Split, count: int) -> list[Text]:
    return list(islice(presidio(split, chance(split, "names"), templates(split)), count))


def look(seeing: Sight, every: Sequence[Text]) -> tuple[list[Seen], float]:
    """One request after the other, each read by the model's own process, and the wall's ms of one, warm."""
    return asyncio.run(_read(seeing, every))


def figures(seen: Sequence[Seen], ms: float, goals: bool = True) -> Iterator[Figure]:
    for kind in NAME_KINDS:
        planted = [(one, value) for one in seen for value in one.text.planted if value.kind == kind]
        found = [_lies(one, kind, value.start, value.end) for one, value in planted]
        said_so = [(one, hit) for one in seen for hit in one.findings if is_kind(hit, kind)]
        right = [_on(one, kind, hit.start, hit.end) for one, hit in said_so]
        yield share("names", kind, "recall", sum(found), len(found), RECALL if goals and kind == "person" else None)
        if kind != "address":
            yield share("names", kind, "precision", sum(right), len(right))
    yield amount("names", "a sentence", "wall ms", ms)


def misses(seen: Sequence[Seen]) -> Iterator[Miss]:
    for one in seen:
        for value in one.text.planted:
            if value.kind in NAME_KINDS and not _lies(one, value.kind, value.start, value.end):
                yield Miss(value.kind, value.notation, one.text.source)


async def _read(seeing: Sight, every: Sequence[Text]) -> tuple[list[Seen], float]:
    reader = NamesReader()
    try:
        await reader.warm()
        began = perf_counter()
        seen = [await _one(seeing, reader, text) for text in every]
        return seen, (perf_counter() - began) * 1e3 / len(every)
    finally:
        await reader.close()


async def _one(seeing: Sight, reader: NamesReader, text: Text) -> Seen:
    body = said(text.text)
    return Seen(text, seeing.findings(body, await seeing.screen.read(request(body), reader)))


def _lies(seen: Seen, kind: str, start: int, end: int) -> bool:
    return any(covers(finding, kind, start, end) for finding in seen.findings)


def _on(seen: Seen, kind: str, start: int, end: int) -> bool:
    """An address is a place as well."""
    kinds = (kind, "address") if kind == "location" else (kind,)
    return any(one.kind in kinds and one.start < end and start < one.end for one in seen.text.planted)
