"""One scan over all patterns: nothing hides behind its neighbour, and hostile text costs no more than its length."""

import random
import string
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.detector import MOST_CANDIDATES, CharacterOffsets, Form, Hit, Scanner, Span
from router.classify.sensitivity.identifiers import IDENTIFIERS_FORMS
from router.classify.sensitivity.patterns import Markings
from tests.classify.looking import HEALTH, IDENTIFIERS, SECRETS, Detector
from tests.classify.looking import values as hits
from tests.tables import data, each_row


def only(value: str) -> Form:
    """Four digits, of which only these are the thing."""

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        if text[start:end] == value:
            yield Span(start, end)

    return Form("digits", r"\d{4}", confirm)


def scan(text: str, *forms: Form) -> list[Hit]:
    return Scanner([Detector(*forms)]).scan(text)


def values(text: str, *forms: Form) -> list[tuple[str, str]]:
    return hits(Scanner([Detector(*forms)]), text)


def beginning_with_seven(text: str, start: int, end: int) -> Iterator[Span]:
    if text[start] == "7":
        yield Span(start, end)


LONG = ("1" * 500 + "z 72", Form("test", r"\d+", beginning_with_seven), "72")
ROWS = data(__file__, "detectors.yaml")


@each_row("text, form, value", [*((text, only("4567"), "4567") for text in ROWS["hiding"]), LONG])
def test_what_only_looks_like_it_hides_nothing_in_it_or_beside_it(text: str, form: Form, value: str) -> None:
    assert [hit for _, hit in values(text, form)] == [value]


@settings(deadline=None)
@given(st.text(), st.text())
def test_a_word_is_found_in_any_text(before: str, after: str) -> None:
    text = before + "needle" + after
    found = scan(text, Form("word", "needle"), Form("other", "(?i)HAYSTACK|straw"))
    assert len(before) in [hit.start for hit in found]
    assert all(text[hit.start : hit.end] == "needle" for hit in found if hit.form == "test.word")


FILES = sorted((Path(__file__).parent / "samples").glob("*.txt"))
SAMPLES = [line for path in FILES for line in path.read_text("utf-8").splitlines() if line]
MARKINGS = Markings.model_validate({"kind": "markings", "class": "export"})
EVERY = Scanner([IDENTIFIERS, SECRETS, HEALTH, MARKINGS])


@given(st.lists(st.sampled_from(SAMPLES) | st.text(max_size=20), min_size=1, max_size=30), st.sampled_from("\n .\t"))
def test_what_the_words_of_a_text_rule_out_is_not_there(pieces: list[str], between: str) -> None:
    text = between.join(pieces)
    encoded = text.encode()
    place = CharacterOffsets(text, encoded)
    ends = [(form, *form.match(re2._re2.RE2.Anchor.UNANCHORED, encoded, 0, len(encoded))[0]) for form in EVERY._forms]
    expected = [hit for form, *first in ends if first[0] >= 0 for hit in form.hits(text, encoded, place, *first)]
    assert EVERY.scan(text) == expected


def test_patterns_too_large_for_one_automaton_are_looked_for_one_by_one() -> None:
    found = values("a needle, and words7", Form("large", r"\pL{1,200}7"), Form("word", "needle"))
    assert found == [("test.large", "words7"), ("test.word", "needle")]


def test_keys_without_a_gap_are_one_hit() -> None:
    """Each of thousands would reach to the end of the last: gigabytes of values."""
    dice = random.Random(17)  # noqa: S311 - the same keys each time
    keys = ["AK" + "IA" + "".join(dice.choices(string.ascii_uppercase + string.digits, k=16)) for _ in range(1_000)]
    hits = Scanner([SECRETS]).scan(" ".join((keys[0], "".join(keys), keys[1])))
    assert [(hit.start, hit.end) for hit in hits[:2]] == [(0, 20), (21, 20_021)]
    assert (hits[-1].start, len(hits) < 10) == (20_022, True)


def test_as_many_as_are_looked_at_are_judged_one_by_one_and_what_was_not_looked_at_counts_as_found() -> None:
    looked = []

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        looked.append(start)
        return iter(())

    text = "1234 " * MOST_CANDIDATES
    assert scan(text + "the end", only("4567")) == []
    assert len(scan(text + "the end", only("1234"))) == MOST_CANDIDATES
    (hit,) = scan(2 * text + "the end", Form("digits", r"\b\d{4}\b", confirm))
    assert len(looked) == MOST_CANDIDATES
    assert hit == Hit("test.digits", "secret", 5 * MOST_CANDIDATES, len(2 * text + "the end"))


@each_row("line", ROWS["logs"])
def test_a_log_holds_no_person_only_because_it_is_long(line: str) -> None:
    assert Scanner([IDENTIFIERS]).scan(line * (2 * MOST_CANDIDATES)) == []


WORDS = ["ssn", "bsn", "dob", "call", "phone", "passport", "iban", "mrn", "npi", "routing", "medicare", "born"]
HOSTILE: dict[str, Callable[[random.Random], str] | str] = {
    "digits": lambda dice: dice.choice(string.digits),
    "digits and gaps": lambda dice: dice.choice("0123456789 -./"),
    "spaced digits": lambda dice: dice.choice(string.digits) + " ",
    "almost cards": lambda dice: f"{dice.choice('3456')}{dice.randrange(10**15):015}{dice.choice(' -,')}",
    "one almost card": "4111 1111 1111 1112 ",
    "almost accounts": "DE89 3704 0044 0532 0130 01 ",
    "almost persons": lambda dice: f"{dice.randrange(10**11):011} ",
    "days": lambda dice: f"{dice.randrange(1, 29):02}{dice.randrange(1, 13):02}{dice.randrange(100):02}-1234 ",
    "almost mail": lambda dice: dice.choice(("a@", "b.", "c-d", "@x", ".")),
    **{text: text for text in ("a", "a@", "a.", "a at ", '"a b', "+1(2)", "(01)", "1.2.3.4.", "2001:db8:")},
    "words without numbers": lambda dice: dice.choice(WORDS) + " ",
    "words with numbers": lambda dice: f"{dice.choice(WORDS)} {dice.randrange(10**9)} ",
    "streets": "12 a Street ",
    "letters and digits": lambda dice: dice.choice(string.ascii_uppercase + string.digits),
    "not ASCII": lambda dice: dice.choice(("é", "日本", "😀", "ß@", "1")),
}


def hostile(name: str, length: int) -> str:
    piece, dice, pieces, size = HOSTILE[name], random.Random(name), [], 0  # noqa: S311 - the same text each time
    if isinstance(piece, str):
        return (piece * length)[:length]
    while size < length:
        pieces.append(piece(dice))
        size += len(pieces[-1])
    return "".join(pieces)[:length]


judged: Counter[int] = Counter()


def counted(number: int, form: Form) -> Form:
    """Counts how often its candidates are judged."""

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        judged[number] += 1
        yield from form.confirm(text, start, end) if form.confirm else ()

    return form._replace(name=f"{number}", confirm=confirm)


@pytest.mark.parametrize(
    "length", [50_000, pytest.param(1_000_000, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])]
)
@each_row("name", HOSTILE)
def test_few_candidates_are_judged_however_long_the_text_is(name: str, length: int) -> None:
    judged.clear()
    scan(hostile(name, length), *(counted(number, form) for number, form in enumerate(IDENTIFIERS_FORMS)))
    assert all(count <= MOST_CANDIDATES for count in judged.values())


def calls(scanner: Scanner, length: int) -> int:
    """How many functions are called to scan all hostile texts of a length: work that no busy machine makes more."""
    texts, count = [hostile(name, length) for name in HOSTILE], 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        for text in texts:
            scanner.scan(text)
    finally:
        sys.setprofile(before)
    return count


def test_eight_times_the_text_is_not_ten_times_the_work() -> None:
    scanner = Scanner([IDENTIFIERS])
    assert 0 < calls(scanner, 16_000) < 10 * calls(scanner, 2_000)
