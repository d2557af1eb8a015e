"""The documents are true: their tables equal the code, their examples run, what they name exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
Row = dict[str, str]


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def rows(text: str, *columns: str) -> list[Row]:
    """The rows of all tables whose header begins with these columns; cells without their backticks."""
    table_rows: list[Row] = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        lines = (line.strip().strip("|").replace("`", "").split("|") for line in table.splitlines())
        head, _, *body = ([cell.strip() for cell in line] for line in lines)
        if tuple(head[: len(columns)]) == columns:
            table_rows += [dict(zip(head, cells, strict=True)) for cells in body]
    return table_rows


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks in one language."""
    return re.findall(rf"^```{language}\n(.+?)^```$", text, re.DOTALL | re.MULTILINE)


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
