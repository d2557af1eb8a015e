"""What all commands share: settings, the ledger, and how they speak and fail."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from router.ledger.ledger import Ledger
    from router.ledger.rows import Connection
    from router.settings import Settings


@contextmanager
def ledger_of(settings: "Settings") -> Iterator["Ledger"]:
    """Where it can't be used, the command fails with one line."""
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
    """`ledger_of`; without one the command fails."""
    with ledger_of(settings) as ledger:
        if not ledger.exists():
            fail(f"there is no ledger at {ledger.name} yet: `lowpass serve` makes it")
        yield ledger


@contextmanager
def failing(*kinds: type[Exception], about: str = "") -> Iterator[None]:
    """The command fails with what these say, after `about`; always with what is wrong with a question or a policy."""
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
        fail(f"{about if isinstance(error, kinds) else ''}{message}")


@contextmanager
def writing() -> Iterator["Connection"]:
    """A connection to the ledger, which is made first."""
    with ledger_of(settings_of(None)) as ledger:
        ledger.migrate()
        with ledger.writing() as connection:
            yield connection


def settings_of(
    policy: Path | None, host: str | None = None, port: int | None = None, workers: str | None = None
) -> "Settings":
    """Of the environment, and of options that stand above it."""
    from router.settings import SettingError, read

    try:
        return read(os.environ, policy=policy, host=host, port=port, workers=workers)
    except SettingError as error:
        fail(str(error))


def errors(count: int) -> str:
    """How a check ended: ok, 1 error, 2 errors."""
    return f"{count:,} error{'s' if count > 1 else ''}" if count else "ok"


def fail(message: str) -> NoReturn:
    """One line on standard error, and status 1."""
    typer.echo(f"lowpass: {message}", err=True)
    raise typer.Exit(1)


def amount_of(option: str, text: str) -> Decimal:
    """USD."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not (amount.is_finite() and 0 <= amount <= 9_000_000 and amount == round(amount, 9)):
        limits = "from 0 to 9000000 with at most 9 decimals, such as 0.0123"
        fail(f"{option}: write an amount in USD {limits}; not '{text}'")
    return amount


def echo_json(value: object) -> None:
    """Decimals as exact JSON numbers."""
    import msgspec

    typer.echo(msgspec.json.Encoder(decimal_format="number").encode(value).decode())


def show_rows(columns: str, rows: Iterable[Sequence[str | None]]) -> None:
    """A table of texts, as wide as the terminal; `columns`: as in `router/report/reports.yaml`."""
    from router.report.render import table
    from router.report.report import Report, parsed

    known = parsed(columns)
    show(table(Report(name="", title="", columns=known, rows=tuple(map(tuple, rows)))))


def show(renderable: object) -> None:
    """Anything that rich can draw."""
    from rich.console import Console

    Console().print(renderable)
