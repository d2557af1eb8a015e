"""docs/settings.md against the source and the command line itself."""

import re
from typing import Any

import typer

from router.cli import app
from tests.docs import ROOT, page, rows

TEXT = page("docs/settings.md")
VARIABLE = re.compile(r"\bLOWPASS_[A-Z_]+\b")


def test_variables() -> None:
    sources = [path for folder in ("router", "adapters", "local_serving") for path in (ROOT / folder).rglob("*.py")]
    read = {name for path in sources for name in VARIABLE.findall(path.read_text("utf-8"))}
    assert {row["variable"] for row in rows(TEXT, "variable")} == read


def test_commands() -> None:
    documented = {
        row["command"]: set(filter(None, re.split(r",\s*", row["arguments and options"])))
        for row in rows(TEXT, "command")
    }
    assert documented == _commands("lowpass", typer.main.get_command(app))


def test_defaults() -> None:
    from router.settings import SHIPPED_POLICY, read

    defaults = {row["variable"]: row["default"] for row in rows(TEXT, "variable")}
    settings = read({"LOWPASS_HOME": "/tmp"})
    assert (settings.host, str(settings.port)) == (defaults["LOWPASS_HOST"], defaults["LOWPASS_PORT"])
    assert (ROOT / defaults["LOWPASS_POLICY"]).samefile(SHIPPED_POLICY)


def _commands(name: str, command: Any) -> dict[str, set[str]]:
    """Typer brings its own copy of click, whose classes have no public name."""
    if hasattr(command, "commands"):
        return {
            path: options
            for sub, part in command.commands.items()
            for path, options in _commands(f"{name} {sub}", part).items()
        }
    return {name: {_written(parameter) for parameter in command.params}}


def _written(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return str(parameter.opts[-1])
    name = str(parameter.name).upper()
    return name if parameter.required else f"[{name}]"
