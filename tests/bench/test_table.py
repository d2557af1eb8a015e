"""The table a bench run prints."""

import msgspec

from bench.load import Quantiles, Result
from bench.table import Machine, Report, Row, Sample, Scenario, Section, render

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


def test_medians_spread_and_ratio_to_nginx() -> None:
    text = render(Report("2030-01-02", MACHINE, 3, (Section(CHAT, ROWS),)))
    assert (
        text
        == """\
2030-01-02, 2 cores of an EPYC (gateway on one, load and upstream on the other), Python 3.11.7, medians of 3 rounds.

**Chat, 32 connections**

| gateway       | CPU ms/request |     min–max | × nginx | requests/s | p50 ms | p95 ms | p99 ms |
| ---           |            --: |         --: |     --: |        --: |    --: |    --: |    --: |
| direct        |              – |           – |       – |      1,500 |   1.00 |   2.00 |   4.00 |
| nginx 1.2     |          0.020 | 0.018–0.031 |     1.0 |      1,500 |   1.00 |   2.00 |   4.00 |
| litellm       | not installed (do this) |             |         |            |        |        |        |
| lowpass 0.1.0 |          0.100 | 0.050–0.200 |     5.0 |      1,500 |   2.00 |   4.00 |   8.00 |
"""
    )


def test_a_stream_also_shows_its_first_event() -> None:
    lines = render(Report("2030-01-02", MACHINE, 3, (Section(STREAM, ROWS),))).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[4:]] == [
        "first event p50 ms",
        "--:",
        "0.50",
        "0.50",
        "",
        "1.00",
    ]


def test_without_nginx_there_is_no_ratio() -> None:
    lines = render(Report("2030-01-02", MACHINE, 3, (Section(CHAT, ROWS[2:]),))).splitlines()
    assert lines[-1].split("|")[4].strip() == "–"


def test_one_core_is_said() -> None:
    shared = Machine("EPYC", cores=1, apart=False, python="3.11.7")
    assert "1 core of an EPYC (shared by gateway, load and upstream)" in render(Report("2030-01-02", shared, 1, ()))


def test_the_json_keeps_every_sample() -> None:
    report = Report("2030-01-02", MACHINE, 3, (Section(CHAT, ROWS),))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
