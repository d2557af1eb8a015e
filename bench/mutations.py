"""Whether the suite notices defects: each of `mutations.yaml` is put into a copy of the sources, and the tests run.

`python -m bench.mutations` prints a line for each and ends with status 1 if one was not noticed. A defect is looked for
in the folders of tests that it names; `--whole` looks through the whole suite for those that were missed there.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml
from msgspec import Struct, convert

ROOT = Path(__file__).parents[1]
LIMIT_S = 1_800
"""A defect that makes tests hang is noticed too."""
_COPIED = ("adapters", "bench", "docs", "local_serving", "policies", "requirements", "router", "tests")


class Mutation(Struct, frozen=True, rename={"becomes": "is"}):
    """In `file` the text `was`, which stands there once, becomes another; folders of `tests` should notice."""

    file: str
    was: str
    becomes: str
    tests: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.file}: {self.was.strip().splitlines()[0][:70]} → {self.becomes.strip()[:40] or '(nothing)'}"


def mutations() -> list[Mutation]:
    return convert(yaml.safe_load((ROOT / "bench" / "mutations.yaml").read_text()), list[Mutation])


def noticed(copy: Path, mutation: Mutation, tests: Sequence[str], processes: int) -> str:
    """Name of the first test that failed; empty where none did."""
    path = copy / mutation.file
    sound = path.read_text()
    assert sound.count(mutation.was) == 1, mutation.title
    path.write_text(sound.replace(mutation.was, mutation.becomes))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", str(processes), *tests]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return "a test that hangs"
    finally:
        path.write_text(sound)
    lines = done.stdout.splitlines()
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if failed else "" if done.returncode == 0 else lines[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", action="store_true", help="then look through the whole suite")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("numbers", type=int, nargs="*", help="of the mutations; else all of them")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in _COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy(path, copy)
        for number, mutation in enumerate(mutations(), 1):
            if options.numbers and number not in options.numbers:
                continue
            tests = [place for place in mutation.tests if (copy / place).exists()]
            test = noticed(copy, mutation, tests, options.processes)
            if not test and options.whole:
                test = noticed(copy, mutation, ["tests"], options.processes)
            missed += not test
            print(f"{number:2} {test or 'NOT NOTICED':60} {mutation.title}", flush=True)
    print(f"{missed} not noticed")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
