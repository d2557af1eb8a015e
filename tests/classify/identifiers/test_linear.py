"""No text makes the detectors work more than in proportion to its length."""

import random
import string
import time
from collections.abc import Callable, Iterator

import pytest

from router.classify.detector import Form, Span
from router.classify.scanner import MOST_CANDIDATES, Scanner
from router.classify.sensitivity import Identifiers
from router.classify.sensitivity.identifiers import FORMS

ALL = Identifiers.model_validate({"kind": "identifiers", "class": "pii"})
LONG = 1_000_000
WORDS = (
    "ssn",
    "bsn",
    "dob",
    "call",
    "phone",
    "passport",
    "iban",
    "mrn",
    "npi",
    "routing",
    "medicare",
    "born",
    "office",
)


def _of(characters: str) -> Callable[[random.Random], str]:
    return lambda chance: chance.choice(characters)


def _cards(chance: random.Random) -> str:
    return chance.choice("3456") + "".join(chance.choices(string.digits, k=15)) + chance.choice(" -,")


HOSTILE: dict[str, Callable[[random.Random], str]] = {
    "digits": _of(string.digits),
    "digits and gaps": _of("0123456789 -./"),
    "spaced digits": lambda chance: chance.choice(string.digits) + " ",
    "almost cards": _cards,
    "one almost card": lambda chance: "4111 1111 1111 1112 ",
    "almost accounts": lambda chance: "DE89 3704 0044 0532 0130 01 ",
    "almost persons": lambda chance: "".join(chance.choices(string.digits, k=11)) + " ",
    "days": lambda chance: f"{chance.randrange(1, 29):02}{chance.randrange(1, 13):02}{chance.randrange(100):02}-1234 ",
    "almost mail": lambda chance: chance.choice(("a@", "b.", "c-d", "@x", ".")),
    "one letter": lambda chance: "a" * 100,
    "at": lambda chance: "a@" * 50,
    "dots": lambda chance: "a." * 50,
    "at in words": lambda chance: "a at ",
    "quotes": lambda chance: '"a b',
    "plus": lambda chance: "+1(2)",
    "brackets": lambda chance: "(01)",
    "machines": lambda chance: "1.2.3.4.",
    "hexadecimal": lambda chance: "2001:db8:",
    "words without numbers": lambda chance: chance.choice(WORDS) + " ",
    "words with numbers": lambda chance: f"{chance.choice(WORDS)} {chance.randrange(10**9)} ",
    "streets": lambda chance: "12 a Street ",
    "letters and digits": _of(string.ascii_uppercase + string.digits),
    "not ASCII": lambda chance: chance.choice(("é", "日本", "😀", "ß@", "1")),
}


def hostile(name: str, length: int) -> str:
    chance, pieces, size = random.Random(name), [], 0  # noqa: S311 - the same text each time
    while size < length:
        pieces.append(HOSTILE[name](chance))
        size += len(pieces[-1])
    return "".join(pieces)[:length]


class Counting(Identifiers):
    """Counts how often each form's candidates are judged."""

    @property
    def forms(self) -> tuple[Form, ...]:
        return tuple(
            form._replace(name=f"{number}", confirm=_counted(form, number)) for number, form in enumerate(FORMS)
        )


judged = [0] * len(FORMS)


def _counted(form: Form, number: int) -> Callable[[str, int, int], Iterator[Span]]:
    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        judged[number] += 1
        yield from form.confirm(text, start, end) if form.confirm else ()

    return confirm


LOGS = [
    "1760000000000 GET /items/42 200 from 10.1.2.3\n",
    "2026-11-21 10:22:05.312 192.168.17.4 id=550e8400-e29b-41d4-a716-446655440000 took 0.4111 ms\n",
    "[1760000000] 172.16.3.9 - 127.0.0.1:8080 v1.2.3.4 bytes=1234567\n",
]


@pytest.mark.parametrize("line", LOGS)
def test_a_long_log_holds_nobody_only_because_it_is_long(line: str) -> None:
    assert Scanner([ALL]).scan(line * (2 * MOST_CANDIDATES)) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_few_candidates_are_judged_however_long_the_text_is(name: str) -> None:
    judged[:] = [0] * len(FORMS)
    Scanner([Counting.model_validate({"kind": "identifiers", "class": "pii"})]).scan(hostile(name, LONG))
    assert max(judged) <= MOST_CANDIDATES


def test_eight_times_the_text_is_not_thirty_times_the_work() -> None:
    """Quadratic would be sixty-four. All at once: one text alone takes too little time to be measured."""
    scanner = Scanner([ALL])
    assert _seconds(scanner, 400_000) < 30 * _seconds(scanner, 50_000)


def _seconds(scanner: Scanner, length: int) -> float:
    texts = [hostile(name, length) for name in HOSTILE]
    start = time.process_time()
    for text in texts:
        scanner.scan(text)
    return time.process_time() - start
