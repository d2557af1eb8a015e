"""The table that `bench.gateway` prints, and the replay of holds on answers as heavy-tailed as real ones."""

import random
from pathlib import Path

import msgspec
import pytest

from bench.holds import COLD, MODELS, figures, folder, replay, report, target
from bench.holds import Row as Answer
from bench.load import Quantiles, Result
from bench.table import Machine, Report, Row, Sample, Scenario, Section, render
from tests.tables import each_row

CHAT = Scenario("Chat, 32 connections", connections=32, stream=False, warm_up=1)
STREAM = Scenario("Stream, 2 connections", connections=2, stream=True, warm_up=1)


def sample(cpu_ms: float | None, p50: float = 1.0) -> Sample:
    latency = Quantiles(p50, 2 * p50, 4 * p50)
    return Sample(cpu_ms, Result(3000, 2.0, 1, latency, first_byte_ms=Quantiles(p50 / 2, p50, p50)))


ROWS = (
    Row("direct", samples=(sample(None),)),
    Row("nginx", "1.2", (sample(0.020), sample(0.018), sample(0.031))),
    Row("litellm", absent="not installed (do this)"),
    Row("lowpass", "0.1.0", (sample(0.1, 3.0), sample(0.05, 1.5), sample(0.2, 2.0))),
)
MACHINE = Machine("EPYC", cores=2, apart=True, python="3.11.7")
TABLE = """\
2030-01-02, 2 cores of an EPYC (gateway on one, load and upstream on the other), Python 3.11.7, medians of 3 rounds.

**Chat, 32 connections**

| gateway       | CPU ms/request |     min–max | × nginx | requests/s | p50 ms | p95 ms | p99 ms |
| ---           |            --: |         --: |     --: |        --: |    --: |    --: |    --: |
| direct        |              – |           – |       – |      1,500 |   1.00 |   2.00 |   4.00 |
| nginx 1.2     |          0.020 | 0.018–0.031 |     1.0 |      1,500 |   1.00 |   2.00 |   4.00 |
| litellm       | not installed (do this) |             |         |            |        |        |        |
| lowpass 0.1.0 |          0.100 | 0.050–0.200 |     5.0 |      1,500 |   2.00 |   4.00 |   8.00 |
"""


def of(scenario: Scenario, rows: tuple[Row, ...] = ROWS) -> Report:
    return Report("2030-01-02", MACHINE, 3, (Section(scenario, rows),))


def test_medians_spread_and_ratio_to_nginx() -> None:
    assert render(of(CHAT)) == TABLE
    assert render(of(CHAT, ROWS[2:])).splitlines()[-1].split("|")[4].strip() == "–", "without nginx there is no ratio"
    shared = Machine("EPYC", cores=1, apart=False, python="3.11.7")
    assert "1 core of an EPYC (shared by gateway, load and upstream)" in render(Report("2030-01-02", shared, 1, ()))


def test_a_stream_also_shows_its_first_event() -> None:
    column = [line.split("|")[-2].strip() for line in render(of(STREAM)).splitlines()[4:]]
    assert column == ["first event p50 ms", "--:", "0.50", "0.50", "", "1.00"]


def test_the_json_keeps_every_sample() -> None:
    assert msgspec.json.decode(msgspec.json.encode(of(CHAT)), type=Report) == of(CHAT)


_CHANCE, _ORDER = random.Random(3), random.Random(1)  # noqa: S311 - the same answers each time


def answer() -> Answer:
    """One in twenty is thirty times as long."""
    thinking = int(_CHANCE.lognormvariate(6.5, 0.6)) * (30 if _CHANCE.random() < 0.05 else 1)
    return Answer(prompt="Who was it, and when? " * 3, input=25, output=thinking + 60, thinking=thinking)


ANSWERS = [answer() for _ in range(400)]


@each_row("name", MODELS)
def test_metered_holds_are_tight_and_never_too_small(name: str) -> None:
    holds = figures([replay(target(name, streamed=True), ANSWERS, _ORDER)])
    assert (holds.overshoots, holds.cut_share) == (0, 0)
    assert 1 < holds.warm < 1.7
    assert 1 < holds.cold < 3


def test_an_answer_that_cannot_be_metered_is_capped_where_few_end() -> None:
    run = replay(target("gpt-5-mini", streamed=False), ANSWERS, _ORDER)
    holds = figures([run])
    assert all(turn.spent <= turn.held for turn in run)
    assert len(run) > COLD
    assert 0 < holds.cut_share < 0.03
    assert holds.extensions == 0


def test_a_report_is_of_both_ways_and_every_model() -> None:
    both = report({"gpt-5-mini": ANSWERS[: COLD + 10]}, shuffles=1)
    assert both.metered.keys() == both.hidden.keys() == {"gpt-5-mini"}
    assert both.metered_warm_mean == both.metered["gpt-5-mini"].warm < both.hidden["gpt-5-mini"].warm


def test_data_that_is_not_there_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWPASS_DATA", str(tmp_path))
    assert folder() is None
