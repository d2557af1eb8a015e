"""`lowpass bench local`, as small as it gets: real engines, a real gateway, and how the figures meet their goals."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.budgets.report import Machine
from bench.gpu.__main__ import measure as measure_gpu
from bench.gpu.levels import Shape
from bench.local.checkpoints import vllm
from bench.local.memory import Engine, Memory
from bench.local.overhead import STREAMS, Overhead, Overheads, Round, Size, compare
from bench.local.part import Goal, Unmeasured, missed
from bench.local.report import Report, render
from bench.local.sites import embedded, engine
from bench.local.spill import Outcome, Spill, outcome
from bench.local.streams import Answer, Ask, Door, keep_busy
from tests.gateway.running import ROOT

WHOLE = Answer(sent=1.0, first=1.5, last=3.0, status=200, tokens=8, whole=True, target="engine")


def test_both_ways_are_measured_in_turns_and_first_tokens_at_both_ends(tmp_path: Path) -> None:
    spec, size = embedded(parallel=STREAMS, context=2048, batch=64, embeddings=False), Size(1, 1, STREAMS, (2, 4))
    with engine(spec, tmp_path) as found:
        overhead = asyncio.run(compare("llama.cpp", Door(found.port, spec.model), tmp_path / "gateway", size))
    assert (len(overhead.direct), len(overhead.through), len(overhead.ratios)) == (1, 1, 1)
    assert all(one.tokens_per_s > 0 and one.cpu_us == 0 for one in overhead.direct)
    assert all(one.tokens_per_s > 0 and one.cpu_us > 0 for one in overhead.through)
    assert len(overhead.added_ms) == STREAMS
    assert all(added > 0 for added in overhead.added_ms), "nothing passes in no time"


def test_answers_come_in_the_order_of_what_was_asked(tmp_path: Path) -> None:
    spec = embedded(parallel=2, context=1024, batch=64, embeddings=False)
    asks = [Ask(str(number), 3 + number % 3) for number in range(6)]
    with engine(spec, tmp_path) as found:
        answers = asyncio.run(keep_busy(Door(found.port, spec.model), asks, 2))
    assert [answer.tokens for answer in answers] == [ask.tokens for ask in asks]
    assert all(answer.whole and answer.sent < answer.first <= answer.last for answer in answers)


def test_an_engine_of_one_s_own_is_measured_by_level_of_load() -> None:
    report = measure_gpu(embedded(context=1024, batch=64, embeddings=False), [1, 2], Shape(8, 4, 0.1), overhead=False)
    assert [level.streams for level in report.levels] == [1, 2]
    assert all(level.output_per_s > 0 for level in report.levels)
    assert {level.joule_per_token for level in report.levels} == {None}, "a CPU has no meter"


def test_goals_of_overhead() -> None:
    fine = Overhead(engine="e", direct=(Round(100, 50),), through=(Round(98, 51, 300),), added_ms=(0.5, 1.0, 9.0))
    slow = Overhead(engine="e", direct=(Round(100, 50),), through=(Round(96, 51, 300),), added_ms=(1.0, 3.0, 3.0))
    assert Overheads(engines=(fine,)).missed == ()
    throughput, first = Overheads(engines=(fine, slow)).missed
    assert throughput.startswith("e, 8 streams: throughput ÷ that without the gateway: 0.960 ")
    assert first.startswith("e, 8 streams: added time to the first token, median: 3.00 ms ")


@pytest.mark.parametrize(("planned", "met"), [(89, False), (91, True), (109, True), (111, False)])
def test_goals_of_a_plan(planned: int, met: bool) -> None:
    assert (Memory(engines=(Engine("e", planned, 100),)).missed == ()) == met


def test_what_is_not_a_whole_answer_is_lost_and_told() -> None:
    slow = msgspec.structs.replace(WHOLE, last=11.0, target="provider")
    refused = msgspec.structs.replace(WHOLE, status=503, whole=False)
    broken = msgspec.structs.replace(WHOLE, whole=False)
    found = outcome([WHOLE, slow, WHOLE, refused, broken, "TimeoutError"], rows=6)
    assert (found.requests, found.rows) == (6, 6)
    assert found.lost == {"status 503": 1, "broken off": 1, "TimeoutError": 1}
    assert found.shares == {"engine": 2, "provider": 1}
    assert found.p50_ms == 2000


def test_goals_of_spilling() -> None:
    alone = Outcome(10, 10, {"status 504": 8}, {"engine": 2}, 3000, 5000)
    fine = Outcome(10, 10, {}, {"engine": 5, "provider": 5}, 900, 1900)
    spill = Spill(per_s=2, busy_ms=500, deadline_ms=2000, alone=alone, spilling=fine)
    assert spill.missed == ()
    lossy = msgspec.structs.replace(fine, p95_ms=2100.0, rows=9, lost={"status 504": 1}, shares={"engine": 9})
    late, lost, rows = msgspec.structs.replace(spill, spilling=lossy).missed
    assert "p95 of served requests: 2,100 ms (engine 100%; alone 5,000 ms, and 8 of 10 lost), goal < 2,000 ms" in late
    assert lost.endswith("requests lost: 1 of 10, goal 0 (1 status 504)")
    assert rows.endswith("rows in the ledger: 9, goal 10")


def test_the_document_and_the_table_say_what_was_found_and_what_was_not() -> None:
    report = Report(date="2030-01-01", machine=Machine("CPU", 2, "3.11", (0.0, 0.1)), quick=True)
    report = report.plus("plan", Memory(engines=(Engine("e", 150, 100),), absent=("vLLM: not here",)))
    assert [(goal.what, goal.ok) for goal in report.goals] == [("e: memory, planned against measured", False)]
    assert report.missed == missed(report.goals)
    assert msgspec.to_builtins(report)["parts"]["plan"]["engines"][0]["planned"] == 150
    text = render(report)
    assert "| e: memory, planned against measured | within 10% | +50.0% (0 MiB planned, 0 MiB measured) | NO |" in text
    assert "missed: e: memory" in text
    assert "not measured: vLLM: not here" in text


def test_a_missed_goal_is_one_line_with_its_reason() -> None:
    assert missed([Goal("w", "≥ 1", "0.5", False, "noise"), Goal("v", "≥ 1", "2", True)]) == (
        "w: 0.5, goal ≥ 1 (noise)",
    )


def test_without_an_environment_vllm_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOWPASS_VLLM_PYTHON", raising=False)
    with pytest.raises(Unmeasured, match="set LOWPASS_VLLM_PYTHON"):
        vllm("vllm", "smollm2", 8)


def test_an_unknown_part_is_refused() -> None:
    argv = [sys.executable, "-m", "router.cli", "bench", "local", "--only", "spil"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=55)
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not know spil: choose of overhead, plan, spill, affinity, cost" in done.stderr
