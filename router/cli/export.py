"""`lowpass export`: the ledger in forms that other systems read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from router.cli.app import PolicyOption, SinceOption, UntilOption, app
from router.terminal import fail, ledger_of, settings_of, tell_problems

if TYPE_CHECKING:
    from router.ledger.ledger import Ledger

export = typer.Typer(no_args_is_help=True, help="The ledger in forms that other systems read.")
app.add_typer(export, name="export")


@export.callback()
def _group() -> None:
    """Keeps `focus` a word of its own while it is the only one."""


@export.command()
def focus(
    out: Annotated[Path, typer.Option(help="The file to write; replaced when the new one is complete.")],
    format: Annotated[Literal["parquet", "csv"], typer.Option(help="Parquet needs `lowpass[export]`.")] = "parquet",
    since: SinceOption = "",
    until: UntilOption = "",
    policy: PolicyOption = None,
) -> None:
    """Cost and usage by hour, as FOCUS 1.4 defines it: whole hours, in UTC."""
    from router.errors import ClientError, ConfigError
    from router.export.focus import ParquetMissing
    from router.ledger.facts.query import Expired
    from router.report.moment import iso

    settings = settings_of(policy)
    try:
        with ledger_of(settings) as ledger:
            if not ledger.exists():
                fail(f"there is no ledger at {ledger.name} yet: `lowpass serve` makes it")
            count = _written(ledger, settings.policy, out, format, since, until)
    except ClientError as error:
        fail(error.message)
    except ConfigError as error:
        tell_problems(error)
    except ParquetMissing as error:
        fail(str(error))
    except Expired as error:
        fail(f"requests before {iso(error.before_ms)} have expired: say --since {iso(error.before_ms)}")
    except OSError as error:
        fail(f"{out} can't be written ({error.strerror}): name a file in a folder that has room")
    typer.echo(f"{out}: {count} records")


def _written(ledger: "Ledger", policy: Path, out: Path, form: str, since: str, until: str) -> int:
    from router.export.focus import dataset, write_csv, write_parquet
    from router.policies import directory
    from router.report.moment import moment
    from router.types.clock import now_ms

    now = now_ms()
    since_ms, until_ms = moment("since", since, now), moment("until", until, now)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        fail(f"--since {since} is not before --until {until}")
    known = directory(policy, ledger)
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        records = dataset(connection, known, since_ms, until_ms)
        return write_csv(out, records) if form == "csv" else write_parquet(out, records)
