"""Policies are read against the real catalog, a fixed environment and three engines."""

from pathlib import Path

from adapters.catalog import shipped
from router.config.check import load, problems
from router.config.policy import Config
from router.types.target import ServedEngine

FOLDER = Path(__file__).parent
CATALOG = shipped()
ENGINES = {
    "smollm2": ServedEngine(name="smollm2", urls=("http://127.0.0.1:4999/v1",), slots=4),
    "gemma3-270m": ServedEngine(name="gemma3-270m", urls=("http://127.0.0.1:4997/v1",), slots=2),
    "gpu": ServedEngine(
        name="gpu", urls=("http://127.0.0.1:4998/v1",), model="base", adapters=frozenset({"legal", "support"}), hourly=1
    ),
}
ENVIRON = {"OPENAI_API_KEY": "sk-never-print-me", "BROKEN_KEY": "sk-never\nprint-me", "EMPTY": ""}


def loaded(path: Path) -> Config:
    return load(path, CATALOG, ENVIRON, ENGINES)


def told(path: Path) -> list[str]:
    """The problems of a policy, without its path."""
    return [str(problem).removeprefix(f"{path}:") for problem in problems(path, CATALOG, ENVIRON, ENGINES)]
