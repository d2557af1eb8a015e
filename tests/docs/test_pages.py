"""What the pages name exists; what a reader would copy is run as it stands, against a gateway of its page's own."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from router.settings import SHIPPED_POLICY
from tests.docs import ROOT, blocks, page, quoted
from tests.docs.gateway import environment
from tests.gateway.running import Gateway
from tests.tables import each_row

DOCS = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *DOCS]
PATH = re.compile(r"^[\w.-]+(/[\w.-]+)*/?$")
FILE = re.compile(r"\.(md|py|sql|toml|yaml|yml|in)$")
OURS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - {"build", "dist"}
EXAMPLES = {"policy.yaml", "adapters/catalog/models/PREFIX.yaml"}
RUN = ("api", "budgets", "deployment", "estimates", "reports", "settings")
ADDRESS = "http://127.0.0.1:4100"
"""Where the pages say that the gateway is."""
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@each_row("name", PAGES)
def test_files_that_a_page_names_exist(name: str) -> None:
    words = {word for word in quoted(FENCED.sub("", page(name))) if PATH.match(word)} - EXAMPLES
    paths = {word for word in words if word.split("/")[0] in OURS or ("/" not in word and FILE.search(word))}
    assert not {path for path in paths if not (ROOT / path).exists() and not ((ROOT / name).parent / path).exists()}


def test_the_site_is_built_of_the_pages_in_its_navigation(tmp_path: Path) -> None:
    """Its builder follows every link and anchor between pages."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    program = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    subprocess.run(program, cwd=tmp_path, check=True, capture_output=True, timeout=250)
    pages = {path.name for path in (tmp_path / "site").glob("*.html")} - {"404.html"}
    assert pages == {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")}
    assert set(re.findall(r"[\w-]+\.md", page("zensical.toml"))) == {Path(name).name for name in DOCS}


@each_row("name", PAGES)
def test_links_lead_to_a_heading(name: str) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page(name)):
        target, _, anchor = link.partition("#")
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.is_file(), link
        headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, link


@each_row("name", PAGES)
def test_make_has_the_targets_that_a_page_names(name: str) -> None:
    code = "\n".join(blocks(page(name), "sh"))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page(name) + code, re.MULTILINE))
    assert named <= set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))


def test_every_page_can_be_found_from_the_readme() -> None:
    linked, waiting = set[str](), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name not in linked:
            linked.add(name)
            links = re.findall(r"\]\(([\w./-]+\.md)", page(name))
            waiting += [str(((ROOT / name).parent / link).resolve().relative_to(ROOT)) for link in links]
    assert set(DOCS) <= linked


@each_row("path", ["README.md", *DOCS])
def test_blocks_are_what_they_say(path: str) -> None:
    assert all(msgspec.json.decode(block) for block in blocks(page(path), "json"))
    assert all(yaml.safe_load(block) for block in blocks(page(path), "yaml"))


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{name}.md" for name in RUN)])
def test_examples_run(name: str, tmp_path: Path) -> None:
    """But for the project's own make targets, which `tests/packaging` runs."""
    examples = re.findall(r"^```(sh|python)\n(.+?)^```$", page(name), re.DOTALL | re.MULTILINE)
    runnable = [(language, code) for language, code in examples if not re.search(r"(?m)^make ", code)]
    assert runnable
    home = tmp_path / "home"
    with Gateway(home, SHIPPED_POLICY.read_text()) as gateway:
        for language, code in runnable:
            start = ["bash", "-euo", "pipefail"] if language == "sh" else [sys.executable, "-W", "error"]
            program = [*start, "-c", code.replace(ADDRESS, gateway.url)]
            done = subprocess.run(
                program, cwd=tmp_path, env=environment(home), capture_output=True, check=False, timeout=250
            )
            output = done.stdout.decode()
            assert done.returncode == 0, f"{code}\n{output}\n{done.stderr.decode()}"
            assert '"error":' not in output, f"{code}\n{output}"


def test_the_example_of_a_test_runs() -> None:
    (example,) = blocks(page("docs/testing.md"), "python")
    exec(compile(example, "docs/testing.md", "exec"), {})  # noqa: S102
