"""Whole runs of the benches, as small as they get."""

import subprocess
import sys

from bench.gateway import SCENARIOS, measure
from bench.startup import import_cli


def test_every_scenario_is_measured_in_every_round() -> None:
    report = measure(["direct", "lowpass"], rounds=2, seconds=0.02)
    assert [section.scenario for section in report.sections] == list(SCENARIOS)
    for section in report.sections:
        direct, lowpass = section.rows
        assert [sample.cpu_ms for sample in direct.samples] == [None, None]
        assert [bool(sample.cpu_ms) for sample in lowpass.samples] == [True, True]
        for sample in direct.samples + lowpass.samples:
            assert sample.load.requests >= 2 * section.scenario.connections


def test_the_profile_names_functions_of_the_gateway() -> None:
    argv = [sys.executable, "-m", "bench.profile", "--requests", "40", "--connections", "2", "--sort", "cumtime"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    assert "router/pipeline.py" in done.stdout


def test_the_cli_starts_without_the_heavy_packages() -> None:
    imported = import_cli()
    assert imported.heavy == []
    assert imported.cpu_s > 0
