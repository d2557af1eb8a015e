"""docs/policy.md is true: its examples run, its messages are the ones told, every key is in it."""

import re
from pathlib import Path
from typing import Any

import pytest

from router.config import load, problems
from router.config.policy import Policy
from tests.config import CATALOG, ENGINES, FOLDER

PAGE = (FOLDER.parents[1] / "docs" / "policy.md").read_text("utf-8")
EXAMPLES = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
MESSAGES = re.findall(r"```text\n(.+?)```", PAGE, re.DOTALL)
ENVIRON = {provider.key_env: "key" for provider in CATALOG.providers.values() if provider.key_env}


@pytest.mark.parametrize("example", EXAMPLES[:-1])
def test_example(example: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(example)
    assert load(path, CATALOG, ENVIRON, ENGINES).routes


def test_messages(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(EXAMPLES[-1])
    told = [str(problem).replace(f"{path}:", "policy.yaml:") for problem in problems(path, CATALOG, {}, ENGINES)]
    assert told == MESSAGES[0].splitlines()


def test_every_key_is_documented() -> None:
    schema: dict[str, Any] = Policy.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    keys = {key for part in parts for key in part.get("properties", ())}
    assert not {key for key in keys if f"`{key}`" not in PAGE}


def test_every_word_is_documented() -> None:
    schema: dict[str, Any] = Policy.model_json_schema()
    words = {word for part in schema["$defs"].values() for word in part.get("enum", ())}
    assert not {word for word in words if f"`{word}`" not in PAGE}
