"""A report as one HTML page that needs nothing else: for a mail, a file, a printer."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from router.report.parts import parts
from router.report.render import NUMBERS, heading, words, written
from router.report.report import Report
from router.report.tell import shown

_WIDTH = 130
"""Letters of a line: a sheet of paper has no more."""


def page(report: Report) -> str:
    """Everything that came from outside is escaped; there is no script, and nothing is loaded from anywhere."""
    return _template().render(report=report)


@cache
def _template() -> Template:
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals |= {"written": written, "words": words, "heading": heading, "shown": shown}
    pages.globals |= {"parts": parts, "width": _WIDTH, "numbers": NUMBERS}
    return pages.get_template("page.html")
