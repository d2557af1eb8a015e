"""docs/dependencies.md gives a reason for every direct dependency, and for nothing else."""

import re

from tests.packaging.project import ROOT, names, pyproject

SECTIONS = {
    "Runtime": "dependencies",
    "LiteLLM": "litellm",
    "Price": "prices",
    "Names": "names",
    "Export": "export",
    "Specialist": "specialist",
    "GPUs": "gpu",
    "OpenTelemetry": "otel",
    "Routing": "bench",
    "Development": "dev",
}


def test_every_direct_dependency_has_its_row_and_no_other() -> None:
    project = pyproject()["project"]
    direct = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    text = (ROOT / "docs" / "dependencies.md").read_text()
    sections = {part.split(maxsplit=1)[0]: part for part in text.split("\n## ")[1:]}
    told = {key: set(re.findall(r"(?m)^\| `([^`]+)` \| \S", sections[title])) for title, key in SECTIONS.items()}
    assert told == {key: names(items) for key, items in direct.items()}
