"""Secrets: recall over all issuers, in code, settings, logs and talk."""

from collections.abc import Iterator, Sequence

from bench.sensitivity.figures import Figure, share
from bench.sensitivity.harmless import written
from bench.sensitivity.identifiers import Miss, Seen, covers
from bench.sensitivity.sentences import Text, filled
from bench.sensitivity.split import Split, chance, half
from bench.sensitivity.texts import blocks
from bench.sensitivity.values import Value
from bench.sensitivity.values.secrets import SECRETS, Secret

RECALL = 0.99


def texts(split: Split, each: int) -> Iterator[Text]:
    """`each` of every kind."""
    for secret in SECRETS:
        places, draw = half(blocks("secrets")["places"], split), chance(split, "secret", secret.kind)
        for number in range(each):
            place = number % len(places)
            yield _text(places[place], secret, secret.make(draw), places[place].splitlines()[0][:30])


def clean(split: Split, count: int) -> Iterator[Text]:
    """Without any: seven in ten about keys and passwords or full of what looks like some, the rest harmless."""
    near = count * 7 // 10
    yield from written(split, "clean", near)
    yield from written(split, "harmless", count - near)


def clean_figures(seen: Sequence[Seen], goals: bool = True) -> Iterator[Figure]:
    hit = sum(any(one.detector.startswith("secrets.") for one in text.findings) for text in seen)
    yield share("secrets", "clean texts", "hits", hit, len(seen), 0.0 if goals else None, at_least=False)


def _text(place: str, secret: Secret, value: str, source: str) -> Text:
    said = {"k": secret.name, "l": secret.label}

    def fill(gap: str) -> tuple[str, Value]:
        return (f"secret:{secret.kind}", Value(value)) if gap == "v" else ("", Value(said[gap]))

    return filled(place, fill, source)


def figures(seen: Sequence[Seen], goals: bool = True) -> Iterator[Figure]:
    found = [(one.text.planted[0].kind, _found(one)) for one in seen]
    total = sum(right for _, right in found)
    yield share("secrets", "all", "recall", total, len(found), RECALL if goals else None)
    for secret in SECRETS:
        own = [right for kind, right in found if kind == f"secret:{secret.kind}"]
        yield share("secrets", secret.kind, "recall", sum(own), len(own))


def misses(seen: Sequence[Seen]) -> Iterator[Miss]:
    for one in seen:
        if not _found(one):
            yield Miss(one.text.planted[0].kind, "", one.text.source)


def _found(seen: Seen) -> bool:
    """On its place: another secret beside it does not count."""
    planted = seen.text.planted[0]
    return any(covers(finding, planted.kind, planted.start, planted.end) for finding in seen.findings)
