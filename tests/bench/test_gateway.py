"""A whole run of the bench, as small as it gets."""

from bench.gateway import SCENARIOS, measure


def test_every_scenario_is_measured_in_every_round() -> None:
    report = measure(["direct"], rounds=2, seconds=0.02)
    assert [section.scenario for section in report.sections] == list(SCENARIOS)
    for section in report.sections:
        (row,) = section.rows
        assert [sample.cpu_ms for sample in row.samples] == [None, None]
        assert all(sample.load.requests >= 2 * section.scenario.connections for sample in row.samples)
