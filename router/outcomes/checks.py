"""What the verifiers and the judge of one route mean together: mistakes that no part shows by itself."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from router.outcomes.judge.policy import Judge
from router.outcomes.verifiers import Verifier


class Mistake(Struct, frozen=True):
    """`at`: keys and indexes from the route down to the value."""

    at: tuple[str | int, ...]
    what: str
    remedy: str


def mistakes(verifiers: Sequence[Verifier], judge: Judge | None, targets: Sequence[str]) -> Iterator[Mistake]:
    """`targets`: the route's own."""
    named: dict[str, int] = {}
    for place, verifier in enumerate(verifiers):
        if verifier.name in named:
            what = f"two verifiers are named '{verifier.name}': nobody could tell what each of them said"
            yield Mistake(("verifiers", place), what, "give one of them a label")
        named[verifier.name] = place
    if judge is not None and set(targets) <= {judge.target}:
        what = f"{judge.target} would only judge its own answers, and those are not judged"
        yield Mistake(("judge", "target"), what, "name another target")
