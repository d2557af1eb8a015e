"""The project's own files, read for the packaging tests."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SETTINGS = set(re.findall(r"LOWPASS_[A-Z_]+[A-Z]", (ROOT / "router" / "settings.py").read_text()))
"""Names of the environment settings that the gateway's own sources read or name."""
PIN = re.compile(r"([a-z0-9.-]+)(?:\[[a-z,-]+\])?==([\w.+-]+)( ; [^-]+?)?((?: +--hash=sha256:[0-9a-f]{64})*)")


def names(dependencies: list[str]) -> set[str]:
    """Distribution names without versions."""
    return {re.split(r"[^A-Za-z0-9_.-]", item, maxsplit=1)[0].lower() for item in dependencies}


class Pin(NamedTuple):
    name: str
    version: str
    hashes: int


def pins(file: str) -> Iterator[Pin]:
    """The requirements of a locked file; a line that is none of the forms of such a file fails."""
    for line in _lines((REQUIREMENTS / file).read_text()):
        found = PIN.fullmatch(line)
        assert found, f"{file}: not a pinned requirement: {line[:80]}"
        yield Pin(found[1], found[2], found[4].count("sha256:"))


def locked(file: str) -> dict[str, str]:
    return {pin.name: pin.version for pin in pins(file)}


def dockerfile() -> list[tuple[str, str]]:
    """Its instructions: keywords and values."""
    steps = (line.partition(" ") for line in _lines((ROOT / "Dockerfile").read_text()))
    return [(keyword, " ".join(value.split())) for keyword, _, value in steps]


def instructions(keyword: str) -> list[str]:
    return [value for name, value in dockerfile() if name == keyword]


def _lines(text: str) -> list[str]:
    """Without comments and empty ones, continuation lines joined."""
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [line.strip() for line in plain.replace("\\\n", " ").splitlines() if line.strip()]
