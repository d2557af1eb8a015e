"""`lowpass bench sensitivity`, as small as it gets: the document that it promises, and a judge that can't be fooled."""

from collections.abc import Iterator

import msgspec
import pytest

from bench.sensitivity import evasions, identifiers
from bench.sensitivity.figures import Figure, wilson
from bench.sensitivity.identifiers import Seen, look
from bench.sensitivity.report import Report, render
from bench.sensitivity.run import measure
from bench.sensitivity.sight import fast, sight
from bench.sensitivity.split import Split, chance
from router.testing import lowpass
from tests.tables import each_row


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """`--check` ends with 1 where a goal is missed."""
    options = ("--quick", "--json", "--check", "--only", "identifiers,secrets,classes")
    done = lowpass(tmp_path_factory.mktemp("sensitivity"), "bench", "sensitivity", *options)
    report = msgspec.json.decode(done.out, type=Report)
    assert done.status == any(figure.passed is False for figure in report.figures), done.error
    return report


def test_the_document_has_every_kind_with_its_goal_and_the_tables_what_was_measured_alone(report: Report) -> None:
    recalls = {
        figure.name: figure for figure in report.figures if (figure.part, figure.what) == ("identifiers", "recall")
    }
    assert recalls.keys() == identifiers.MAKERS.keys()
    assert all(figure.goal == 0.97 and figure.of and figure.passed is not None for figure in recalls.values())
    assert all((figure.low or 0) <= figure.value <= (figure.high or 0) for figure in recalls.values())
    assert len([figure for figure in report.figures if (figure.part, figure.what) == ("secrets", "recall")]) > 25
    assert (report.split, report.missed) == ("test", {})
    shown = [text in render(report) for text in ("| us_ssn |", "Seen as", "Hidden", "Speed")]
    assert shown == [True, True, False, False]


def test_a_judge_that_sees_nothing_misses_everything() -> None:
    blind = measure(("identifiers", "secrets", "evasions"), quick=True, split=Split.DEV, seeing=sight(()))
    recalls = [figure for figure in blind.figures if figure.what == "recall" and figure.goal is not None]
    assert recalls
    assert not any(figure.passed or figure.value > 0.02 for figure in recalls), "but what can't be read at all"
    assert sum(times for kind, times in blind.missed.items() if kind.startswith("card: ")) > 10
    assert "✗ ≥ 0.97" in render(blind)
    assert set(recalls) <= set(blind.failed)
    values = [text.text[one.start : one.end] for text in identifiers.texts(Split.DEV, 5) for one in text.planted]
    missed = "\n".join(blind.missed)
    assert values
    assert not [value for value in values if value in missed and len(value) > 6], "categories hold no values"


def test_a_card_found_in_something_else_costs_precision() -> None:
    seen = look(fast(), identifiers.texts(Split.DEV, 3))
    renamed = [
        Seen(one.text, tuple(msgspec.structs.replace(hit, detector="identifiers.card") for hit in one.findings))
        for one in seen
    ]
    assert _of(identifiers.figures(seen), "email", "precision") == 1
    assert _of(identifiers.figures(renamed), "card", "precision") < 0.5
    assert _of(identifiers.figures(renamed), "email", "recall") == 0


def test_every_evasion_hides_the_value_from_who_reads_plainly() -> None:
    for text in evasions.sample(Split.DEV, 1, 0):
        planted = text.planted[0]
        for name, hide in evasions.EVASIONS.items():
            body = hide(text, planted, chance(Split.DEV, name))
            value = text.text[planted.start : planted.end]
            assert body is None or name == "JSON in JSON" or value not in str(body), name


def test_halves_share_no_sentence_and_no_value() -> None:
    dev, test = (list(identifiers.texts(split, 10)) for split in Split)
    assert not {one.text for one in dev} & {one.text for one in test}
    assert list(identifiers.texts(Split.DEV, 10)) == dev


@each_row("hits, of, low, high", [(0, 1000, 0, 0.00383), (97, 100, 0.9155, 0.98974), (0, 0, 0, 1)])
def test_intervals(hits: int, of: int, low: float, high: float) -> None:
    assert wilson(hits, of) == pytest.approx((low, high), abs=1e-4)


def _of(figures: Iterator[Figure], name: str, what: str) -> float:
    return next(one.value for one in figures if (one.name, one.what) == (name, what))
