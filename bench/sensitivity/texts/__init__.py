"""Texts of our own, with gaps: `[kind]`-headed blocks, apart by lines of `---`."""

from functools import cache
from pathlib import Path


@cache
def blocks(name: str) -> dict[str, tuple[str, ...]]:
    """Heading → its blocks, of a file beside this one."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (Path(__file__).parent / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("=== "):
            heading = line[4:].strip()
            found[heading] = [[]]
        elif line == "---":
            found[heading].append([])
        elif heading:
            found[heading][-1].append(line)
    return {name: tuple("\n".join(lines).strip("\n") for lines in each) for name, each in found.items()}
