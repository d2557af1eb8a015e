"""The documents are true: their tables equal the code, their examples run, what they name exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
Row = dict[str, str]


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def rows(text: str, *columns: str) -> list[Row]:
    """The rows of all tables whose header begins with these columns; cells without their backticks."""
    found: list[Row] = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        head, _, *body = (_cells(line) for line in table.splitlines())
        if tuple(head[: len(columns)]) == columns:
            found += [dict(zip(head, cells, strict=True)) for cells in body]
    return found


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks in one language."""
    return re.findall(rf"^```{language}\n(.+?)^```$", text, re.DOTALL | re.MULTILINE)


def quoted(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
