"""Whether the answer is what the client expects, but for case, blanks and marks around it."""

import unicodedata
from typing import Literal

from router.outcomes.part import Part
from router.outcomes.reading import calls_only, expected
from router.outcomes.verifiers.number import boxed
from router.types.outcome import Answer
from router.types.request import Request

_AROUND = " \t\r\n.,;:!?\"'`´“”„‘’«»()[]{}*_#$。，！？、；：「」『』"


class Exact(Part):
    """`metadata.expected` of the request says what is right; a request without it is not judged."""

    kind: Literal["exact"]

    def check(self, request: Request, answer: Answer) -> float | None:
        right = {normalised(one) for one in expected(request)}
        if not right or calls_only(answer):
            return None
        said = {normalised(answer.text), *map(normalised, boxed(answer.text)[-1:])}
        return float(bool(said & right))


def normalised(text: str) -> str:
    """NFKC, without case, marks at both ends, and more than one blank at a time."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_AROUND)
