"""A price list of LiteLLM's form that is installed as a package would be, in a folder of its own."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, version: str, entries: Mapping[str, Any]) -> None:
    package, facts = folder / "litellm", folder / f"litellm-{version}.dist-info"
    package.mkdir(parents=True)
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: litellm\nVersion: {version}\n")
    (package / "model_prices_and_context_window_backup.json").write_bytes(msgspec.json.encode(entries))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
