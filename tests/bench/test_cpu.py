"""The CPU account of a process tree equals what its members say of themselves."""

import os
import subprocess
import sys

import pytest

from bench.cpu import descendants, tree_seconds

BURN = "import time\nwhile time.process_time() < 0.4: pass\n"
REPORT = "import sys, time\nprint(time.process_time(), flush=True)\nsys.stdin.read()\n"
REAPS = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}], check=True)\n" + REPORT
THREAD = f"import threading\nt = threading.Thread(target=lambda: exec({BURN!r}))\nt.start()\nt.join()\n" + REPORT
CHILD_S = 0.4


def spawn(script: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("script", "unreported"),
    [
        pytest.param(BURN + REPORT, 0.0, id="own time"),
        pytest.param(THREAD, 0.0, id="an ended thread's"),
        pytest.param(REAPS, CHILD_S, id="an ended child's"),
    ],
)
def test_a_busy_child_is_accounted_for(script: str, unreported: float) -> None:
    with spawn(script) as child:
        assert child.stdout
        assert child.stdin
        said = float(child.stdout.readline()) + unreported
        counted = tree_seconds(child.pid)
        child.stdin.close()
    assert said * 0.8 < counted < said * 1.5


def test_a_living_grandchild_belongs_to_the_tree() -> None:
    inner = BURN + REPORT
    outer = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {inner!r}])\n"
    with spawn(outer) as child:
        assert child.stdout
        assert child.stdin
        said = float(child.stdout.readline())
        assert len(descendants(child.pid)) == 1
        counted = tree_seconds(child.pid)
        child.stdin.close()
    assert said * 0.8 < counted


def test_an_idle_tree_does_not_carry_the_time_of_its_parent() -> None:
    burnt = os.times().user + os.times().system
    with spawn(REPORT) as child:
        assert child.stdout
        assert child.stdin
        said = float(child.stdout.readline())
        counted = tree_seconds(child.pid)
        child.stdin.close()
    assert counted < said + burnt


def test_a_process_that_is_gone_is_an_error() -> None:
    with spawn("") as child:
        child.wait()
    with pytest.raises(ProcessLookupError, match=f"no process {child.pid}"):
        tree_seconds(child.pid)
