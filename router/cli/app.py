"""The command `lowpass` and its groups, and what all commands share: options, settings, access to the ledger, output
and errors."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_group

if TYPE_CHECKING:
    from router.ledger.ledger import Ledger
    from router.ledger.rows import Connection
    from router.settings import Settings

_GROUPS = {
    "keys": ("router.cli.keys:app", "API keys: stored as a hash, shown once."),
    "ledger": ("router.cli.ledger:app", "The ledger itself: whether it is right, its size, copies of it."),
    "local": ("router.cli.local:app", "Engines of one's own: what fits, and what runs."),
    "import": ("router.cli.exchange:imports", "Policies made of other gateways' configurations."),
    "bench": ("bench.commands:app", "Measurements on this machine; they need a checkout."),
    "export": ("router.cli.exchange:export", "The ledger in forms that other systems read."),
}


class _Group(TyperGroup):
    """A group whose module is imported only when one of its commands is needed, so that the shell stays fast."""

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
SinceOption = Annotated[str, typer.Option(help="A date, a time, an age such as 7d or 24h, or all.")]
UntilOption = Annotated[str, typer.Option(help="Likewise.")]


# Settings, access to the ledger, output and errors.


@contextmanager
def ledger_of(settings: "Settings") -> Iterator["Ledger"]:
    """Yields the ledger of these settings; the command fails with one line if it can't be used."""
    from router.ledger.ledger import ledger_at
    from router.ledger.migrate import LedgerTooNew
    from router.settings import SettingError
    from router.types.account import LedgerUnavailable

    try:
        yield ledger_at(settings.sqlite, settings.database_url)
    except (LedgerTooNew, LedgerUnavailable, SettingError) as error:
        fail(str(error))


@contextmanager
def ledger_there(settings: "Settings") -> Iterator["Ledger"]:
    """Yields the ledger like `ledger_of`; the command also fails if there is none yet."""
    with ledger_of(settings) as ledger:
        if not ledger.exists():
            fail(f"there is no ledger at {ledger.name} yet: `lowpass serve` makes it")
        yield ledger


@contextmanager
def failing(*kinds: type[Exception], about: str = "", after: str = "") -> Iterator[None]:
    """Lets the command fail with the message of errors of `kinds`, between `about` and `after`. `ClientError` and
    `ConfigError` always make it fail."""
    from router.errors import ClientError, ConfigError

    known: tuple[type[Exception], ...] = (ClientError, *kinds)
    try:
        yield
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        fail(f"{errors(len(error.problems))} in the policy")
    except known as error:
        message: object = error
        if isinstance(error, ClientError):
            message = error.message
        elif isinstance(error, OSError | LookupError):
            message = error.strerror if isinstance(error, OSError) else error.args[0]
        fail(f"{about}{message}{after}" if isinstance(error, kinds) else str(message))


@contextmanager
def writing() -> Iterator["Connection"]:
    """Yields a connection that writes to the ledger, which is created if needed."""
    with ledger_of(settings_of(None)) as ledger:
        ledger.migrate()
        with ledger.writing() as connection:
            yield connection


def settings_of(
    policy: Path | None, host: str | None = None, port: int | None = None, workers: str | None = None
) -> "Settings":
    """Returns the settings of the environment, overridden by options."""
    from router.settings import SettingError, read

    try:
        return read(os.environ, policy=policy, host=host, port=port, workers=workers)
    except SettingError as error:
        fail(str(error))


def errors(count: int) -> str:
    """Returns the result of a check in words: ok, 1 error, 2 errors."""
    return f"{count:,} error{'s' if count > 1 else ''}" if count else "ok"


def fail(message: str) -> NoReturn:
    """Writes one line to standard error and exits with status 1."""
    typer.echo(f"lowpass: {message}", err=True)
    raise typer.Exit(1)


def amount_of(option: str, text: str) -> Decimal:
    """Returns the USD amount of an option; fails unless it is from 0 to 9,000,000 with at most 9 decimals."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not (amount.is_finite() and 0 <= amount <= 9_000_000 and amount == round(amount, 9)):
        limits = "from 0 to 9000000 with at most 9 decimals, such as 0.0123"
        fail(f"{option}: write an amount in USD {limits}; not '{text}'")
    return amount


def echo_json(value: object) -> None:
    """Prints a value as JSON, with decimals as exact numbers."""
    import msgspec

    encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=lambda part: part.model_dump())  # a spec
    typer.echo(encoder.encode(value).decode())


def show_rows(columns: str, rows: Iterable[Iterable[str | None]]) -> None:
    """Prints a table of texts, as wide as the terminal; `columns` is written as in `router/report/reports.yaml`."""
    from router.report.render import table
    from router.report.report import Report, parsed

    show(table(Report(name="", title="", columns=parsed(columns), rows=tuple(map(tuple, rows)))))


def show(renderable: object) -> None:
    """Prints anything that rich can render."""
    from rich.console import Console

    Console().print(renderable)
