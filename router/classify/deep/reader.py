"""The process that reads names: JSON lines of texts on its input, JSON lines of spans on its output.

A process of its own: the model's work would stop the event loop, and its memory is given back with it.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from router.classify.deep.names import MODEL, Entity, Named
from router.classify.deep.people import people, rightly

_ENTITIES = {
    "PERSON": Entity.PERSON,
    "GPE": Entity.LOCATION,
    "LOC": Entity.LOCATION,
    "FAC": Entity.LOCATION,
    "ORG": Entity.ORGANISATION,
}
"""The model's labels: https://catalog.ldc.upenn.edu/LDC2013T19 (OntoNotes 5)."""
_TEXTS = msgspec.json.Decoder(list[str])


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Until the input ends. The first line out is empty: it is ready."""
    model = load()
    sink.write(b"\n")
    sink.flush()
    for line in source:
        answer = [merged(text, found) for text, found in _read(model, _TEXTS.decode(line))]
        sink.write(msgspec.json.encode(answer) + b"\n")
        sink.flush()


def load() -> Any:
    """Only what finds entities: the rest of the pipeline is not needed for it."""
    import spacy

    (folder,) = [entry.parent for entry in Path(str(files(MODEL))).glob("*/config.cfg")]
    return spacy.load(folder, exclude=["tagger", "parser", "attribute_ruler", "lemmatizer", "senter"])


def _read(model: Any, texts: Sequence[str]) -> Iterator[tuple[str, list[Named]]]:
    for text, document in zip(texts, model.pipe(texts), strict=True):
        known = [(one, _ENTITIES[one.label_]) for one in document.ents if one.label_ in _ENTITIES]
        yield text, [Named(entity, one.start_char, one.end_char) for one, entity in known]


def merged(text: str, found: Sequence[Named]) -> list[Named]:
    """The model's, and the persons that it overlooked; what overlaps and is of one kind is one."""
    rest = [right for one in found if (right := rightly(text, one)) is not None]
    whole: list[Named] = []
    for one in sorted([*rest, *people(text)], key=lambda named: (named.entity, named.start)):
        last = whole[-1] if whole else None
        if last is not None and last.entity == one.entity and one.start < last.end:
            whole[-1] = Named(last.entity, last.start, max(last.end, one.end))
        else:
            whole.append(one)
    return whole


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
