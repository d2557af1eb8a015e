"""The project's own files, read for the packaging tests."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def names(dependencies: list[str]) -> set[str]:
    """Distribution names without versions."""
    return {re.split(r"[^A-Za-z0-9_.-]", item, maxsplit=1)[0].lower() for item in dependencies}


class Pin(Struct, frozen=True):
    name: str
    version: str
    hashes: int


def pins(file: str) -> Iterator[Pin]:
    """The requirements of a locked file; a line that is none of the forms of such a file fails."""
    text = (REQUIREMENTS / file).read_text().replace("\\\n", " ")
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if not line.startswith("#"):
            found = re.fullmatch(
                r"([a-z0-9.-]+)(?:\[[a-z,-]+\])?==([\w.+-]+)( ; [^-]+?)?((?: +--hash=sha256:[0-9a-f]{64})*)", line
            )
            assert found, f"{file}: not a pinned requirement: {line[:80]}"
            yield Pin(found[1], found[2], found[4].count("sha256:"))


class Instruction(Struct, frozen=True):
    """One instruction of a Dockerfile, continuation lines joined."""

    keyword: str
    value: str


def dockerfile() -> tuple[Instruction, ...]:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    split = (line.split(maxsplit=1) for line in joined if line.strip())
    return tuple(Instruction(keyword, " ".join(value.split())) for keyword, value in split)


def documented_settings() -> set[str]:
    """Names of the environment settings that the gateway's own sources read or name."""
    return set(re.findall(r"LOWPASS_[A-Z_]+[A-Z]", (ROOT / "router" / "settings.py").read_text()))
