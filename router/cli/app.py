"""The command `lowpass`, its groups and the options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

_NAMES = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings=_NAMES)
keys = typer.Typer(no_args_is_help=True, help="API keys: stored as a hash, shown once.")
app.add_typer(keys, name="keys")
ledger = typer.Typer(no_args_is_help=True, help="The ledger itself: whether it is right, its size, copies of it.")
app.add_typer(ledger, name="ledger")
local = typer.Typer(no_args_is_help=True, help="Engines of one's own: what fits, and what runs.")
app.add_typer(local, name="local")
imports = typer.Typer(no_args_is_help=True, help="Policies made of other gateways' configurations.")
app.add_typer(imports, name="import")
bench = typer.Typer(no_args_is_help=True, help="Measurements on this machine; they need a checkout.")
app.add_typer(bench, name="bench")


def _version(requested: bool) -> None:
    if requested:
        from importlib import metadata

        typer.echo(f"lowpass {metadata.version('lowpass-gateway')}")
        raise typer.Exit


@app.callback()
def options(version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version)] = False) -> None:
    """A cost-aware inference gateway."""


PolicyOption = Annotated[Path | None, typer.Option("--policy", help="Policy file; else LOWPASS_POLICY.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
SinceOption = Annotated[str, typer.Option(help="A date, a time, or an age such as 7d or 24h.")]
UntilOption = Annotated[str, typer.Option(help="Likewise.")]
