"""The command `lowpass`, its groups and the options that several commands share."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from router.cli.terminal import fail

_GROUPS = {
    "keys": ("router.cli.keys:app", "API keys: stored as a hash, shown once."),
    "ledger": ("router.cli.ledger:app", "The ledger itself: whether it is right, its size, copies of it."),
    "local": ("router.cli.local:app", "Engines of one's own: what fits, and what runs."),
    "import": ("router.cli.exchange:imports", "Policies made of other gateways' configurations."),
    "bench": ("bench.commands:app", "Measurements on this machine; they need a checkout."),
    "export": ("router.cli.exchange:export", "The ledger in forms that other systems read."),
}


class _Group(TyperGroup):
    """Its commands are in a module that is imported once one of them is asked for, so that the shell stays fast."""

    def _loaded(self) -> TyperGroup:
        try:
            return get_group(resolve_name(_GROUPS[str(self.name)][0]))
        except ModuleNotFoundError as error:  # `bench` is not part of the package
            fail(f"this needs a checkout with the dev requirements, and its folder as the current one ({error})")

    def list_commands(self, ctx: Any) -> list[str]:
        return self._loaded().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._loaded().get_command(ctx, cmd_name)


_NAMES = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings=_NAMES)
for name, (_, about) in _GROUPS.items():
    app.add_typer(typer.Typer(cls=_Group, no_args_is_help=True, help=about), name=name)


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
