"""`lowpass bench …` and `python -m bench.…` as users call them, as small as they get: what they print, how they end."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench import demo
from bench.budgets.report import Report, render
from bench.gateway import SCENARIOS, measure
from bench.prompts import PROMPTS
from bench.routing import speed
from bench.startup import import_cli
from router.testing import lowpass
from router.testing.upstream import Upstream
from tests.bench.made import columns, written
from tests.gateway.running import ROOT, ordered, serving, target
from tests.tables import data, each_row


@each_row("command, parts", data(__file__, "refused.yaml")["parts"])
def test_an_unknown_part_is_refused(tmp_path: Path, command: str, parts: str) -> None:
    done = lowpass(tmp_path, "bench", command, "--only", "spil")
    assert (done.status, done.out) == (1, "")
    assert f"does not know spil: choose of {parts}" in done.error


@each_row("options, message", data(__file__, "refused.yaml")["routing"])
def test_routing_fails_with_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    made = written(tmp_path, *columns())
    (made / "made.txt").touch()
    (made / "broken.parquet").write_bytes(b"PAR1 no")
    done = lowpass(tmp_path, "bench", "routing", *(option.format(made=made) for option in options))
    assert (done.status, done.out) == (1, "")
    assert done.error.startswith("lowpass: ")
    assert done.error.count("\n") == 1
    assert message in done.error


def test_prompts_of_the_demo_that_fail_are_shown_with_their_error_and_end_in_status_1(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = {"broken": target(upstream.url, "error-500@demo")}
    rules = {"version": 1, "targets": targets, "routes": {"auto": ordered("broken")}}
    with serving(tmp_path, rules) as gateway:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["bench.demo", "--base-url", f"{gateway.url}/v1"])
        with pytest.raises(SystemExit) as end:
            demo.main()
    printed = capsys.readouterr().out
    assert end.value.code == 1, printed
    assert f"Using the gateway at {gateway.url}/v1" in printed
    names = {prompt.name for prompt in PROMPTS}
    assert len(names) == len(PROMPTS) >= 30
    failed = [line for line in printed.splitlines() if line.startswith("✗")]
    errors = [line[len(f"✗ {name} ") :].strip() for line in failed for name in names if line.startswith(f"✗ {name} ")]
    assert (len(failed), len(errors) >= len(failed), all(errors)) == (len(PROMPTS) - 1, True, True), printed
    assert "The server had an error" in failed[0]
    assert f"1 of {len(PROMPTS)} prompts answered" in printed


@pytest.mark.timeout(600)
def test_crowds_overspend_nothing_and_each_hold_has_its_price(tmp_path: Path) -> None:
    done = lowpass(tmp_path, "bench", "budgets", "--quick", "--json", "--only", "crowds,cost")
    assert done.status == 0, done.error
    report, names = msgspec.json.decode(done.out, type=Report), ["new-key", "delegation", "retries", "cut"]
    crowds = [(crowd.store, crowd.name) for crowd in report.crowds]
    assert crowds == [(store, name) for store in ("sqlite", "redis") for name in names]
    for crowd in report.crowds:
        assert crowd.books_right
        assert (crowd.overshoot, crowd.false_refusals) == (0, 0)
        assert crowd.answered + crowd.refused + sum(crowd.others.values()) == crowd.requests
        # 402 here: refused at its target, which names no budget.
        assert crowd.others.keys() <= ({"200", "402"} if crowd.name == "cut" else {"402"})
        assert 0 < crowd.spent <= crowd.limit
    assert (report.max_overshoot, report.false_refusals) == (0, 0)
    assert [(cost.store, cost.accounts) for cost in report.cost] == [("sqlite", 1), ("sqlite", 3), ("redis", 1)]
    assert all(0 < cost.least_us <= cost.cpu_us <= cost.most_us for cost in report.cost)
    text = render(report)
    assert "| delegation | redis | 2 |" in text
    assert "Reserve and settle, 32 in flight" in text
    assert "kill -9" not in text
    assert report.machine.cores > 0


@pytest.mark.timeout(600)
def test_every_scenario_of_the_gateway_is_measured_in_every_round() -> None:
    report = measure(["direct", "lowpass"], rounds=2, seconds=0.02)
    assert [section.scenario for section in report.sections] == list(SCENARIOS)
    for section in report.sections:
        direct, gateway = section.rows
        assert [sample.cpu_ms for sample in direct.samples] == [None, None]
        assert [bool(sample.cpu_ms) for sample in gateway.samples] == [True, True]
        for sample in direct.samples + gateway.samples:
            assert sample.load.requests >= 2 * section.scenario.connections


@pytest.mark.timeout(600)
def test_the_profile_names_functions_of_the_gateway_and_the_cli_starts_without_the_heavy_packages() -> None:
    argv = [sys.executable, "-m", "bench.profile", "--requests", "40", "--connections", "2", "--sort", "cumtime"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "router/pipeline.py" in done.stdout
    imported = import_cli()
    assert (imported.heavy, imported.cpu_s > 0) == ([], True)


def test_the_speed_of_routing_is_measured_for_every_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SIZES", ((20, 2, 0.0), (50, 1, 1e6)))
    report = speed.measure(rounds=1)
    texts = ("prose", "words nobody has seen")
    assert [(row.text, row.tokens) for row in report.times] == [(text, size) for text in texts for size in (20, 50)]
    assert all(row.read_ms > 0 and row.choose_ms > 0 and row.screen_ms > 0 for row in report.times)
    assert 10 < report.before_mb <= report.after_mb + 1
    assert not report.sound
    text = speed.render(report)
    assert text.count("✗") == 1
    assert "MB" in text
