"""docs/reports.md against the catalog of reports."""

import re

from router.report.catalog import REPORTS
from router.report.spend import COLUMNS
from tests.docs import page, quoted, rows

TEXT = page("docs/reports.md")


def test_every_report_is_there_with_what_it_takes() -> None:
    found = {row["report"]: (row["grouped by"], row["filtered by"]) for row in rows(TEXT, "report", "what it tells")}
    documented = {re.sub(r"\[(.+)\]\(.+\)", r"\1", name): both for name, both in found.items()}
    assert documented == {one.name: (", ".join(one.by), ", ".join(one.where)) for one in REPORTS.values()}


def test_every_column_of_spend_is_there() -> None:
    section = TEXT.partition("\n## Spend\n")[2].partition("\n## ")[0]
    names = [column.name for column in COLUMNS]
    documented: list[str] = []
    for cell in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE):
        ends = quoted(cell)
        if "…" in cell:
            documented += [*ends[:-2], *names[names.index(ends[-2]) : names.index(ends[-1]) + 1]]
        else:
            documented += ends
    assert sorted(documented) == sorted(names)
