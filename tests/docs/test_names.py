"""Files, links and make targets that the pages name exist."""

import re

from tests.docs import ROOT, blocks, page, quoted
from tests.tables import each_row

DOCS = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *DOCS]
PATH = re.compile(r"^[\w.-]+(/[\w.-]+)*/?$")
FILE = re.compile(r"\.(md|py|sql|toml|yaml|yml|in)$")
OURS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
MADE = {"build", "dist"}
EXAMPLES = {"policy.yaml", "adapters/catalog/models/PREFIX.yaml"}
"""Names that stand for others."""


@each_row("name", PAGES)
def test_files(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", page(name), flags=re.DOTALL | re.MULTILINE)
    words = {word for word in quoted(text) if PATH.match(word)} - EXAMPLES
    paths = {word for word in words if word.split("/")[0] in OURS - MADE or ("/" not in word and FILE.search(word))}
    assert not {path for path in paths if not (ROOT / path).exists() and not ((ROOT / name).parent / path).exists()}


@each_row("name", PAGES)
def test_links(name: str) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page(name)):
        target, _, anchor = link.partition("#")
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.is_file(), link
        assert not anchor or anchor in _anchors(path.read_text("utf-8")), link


@each_row("name", PAGES)
def test_make_targets(name: str) -> None:
    code = "\n".join(blocks(page(name), "sh"))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page(name) + code, re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))
    assert named <= targets


def test_every_page_can_be_found() -> None:
    """From the README, by links."""
    seen, waiting = set[str](), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            links = re.findall(r"\]\(([\w./-]+\.md)", page(name))
            waiting += [str(((ROOT / name).parent / link).resolve().relative_to(ROOT)) for link in links]
    assert set(DOCS) <= seen


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
