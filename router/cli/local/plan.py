"""`lowpass local list`: which engines there are."""

import typer

from router.cli.app import JsonOption, local
from router.terminal import echo_json


@local.command("list")
def list_engines(as_json: JsonOption = False) -> None:
    """The engines that come with lowpass: name, kind, model, licence."""
    from local_serving.spec import known, read

    specs = [read(name) for name in known()]
    if as_json:
        return echo_json(specs)
    for spec in specs:
        typer.echo(f"{spec.name:<24} {type(spec).__name__.lower():<10} {spec.model:<40} {spec.licence}")
