"""`lowpass ledger`: verifies, measures, migrates, backs up and restores the ledger; corrects charges."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from router.cli.app import (
    JsonOption,
    PolicyOption,
    amount_of,
    echo_json,
    errors,
    fail,
    failing,
    ledger_of,
    ledger_there,
    settings_of,
    show_rows,
)
from router.ledger.adjust import NotAdjustable, corrected_ratios, revoke_price
from router.ledger.backup import BackupBroken, NotEmpty
from router.ledger.backup import backup as write_backup
from router.ledger.backup import info as ledger_info
from router.ledger.backup import restore as restore_backup
from router.ledger.keys import COMMAND_LINE
from router.ledger.ledger import SqliteLedger
from router.ledger.migrate import WouldLose
from router.ledger.reconcile import StatementError, date_of
from router.ledger.upkeep import upkeep as run_upkeep
from router.ledger.verify import verify as check
from router.ledger.verify import verify_budgets
from router.report.recompute import BudgetHistory, repriced
from router.types.account import StoreUnavailable
from router.types.clock import now_ms
from router.types.price import nano_from_usd, usd_text

if TYPE_CHECKING:
    from router.cli.offline import Reconciled

app = typer.Typer()
_UNCHANGED = "nothing is changed, as the store of the budgets does not answer: "


@app.command()
def verify(policy: PolicyOption = None, as_json: JsonOption = False) -> None:
    """Check every row again: sums, holds, prices, bookings, references. Fails if anything is wrong."""
    from router.cli.offline import known_prices
    from router.config.load import load_policy

    settings = settings_of(policy)
    own, local = settings.database_url is None and settings.redis_url is None, SqliteLedger(settings.sqlite)
    has_local = settings.database_url is not None and settings.redis_url is None and local.exists()
    with ledger_there(settings) as books, failing(StoreUnavailable, about="Redis can't be compared: "):
        files = [] if policy is None else [load_policy(policy)]
        prices, tell = repriced(known_prices(books)), _progress("requests looked at")
        with books.reading() as connection, local.reading() if has_local else nullcontext() as local_connection:
            booked = BudgetHistory(connection, local_connection, {config.hash: config.budgets for config in files})
            result = check(books, also=lambda row: chain(prices(row), booked(row)), own_budgets=own, progress=tell)
        if settings.redis_url is not None:
            from router.cli.offline import redis_findings

            result = result.beside(redis_findings(settings, books))
        results = [(books, result)]
        if has_local:
            results.append((local, verify_budgets(local, books)))
    if as_json:
        echo_json([{"ledger": each.name, "sound": result.sound, **asdict(result)} for each, result in results])
    else:
        for each, result in results:
            for finding in result.findings:
                typer.echo(str(finding))
            if len(result.findings) < result.found:
                typer.echo(f"… and {result.found - len(result.findings):,} more")
            counts = f"{result.requests:,} requests, {result.attempts:,} attempts"
            head = f", chain {result.chain}" if result.chain else ""
            typer.echo(f"{each.name}: {counts}{head}: {errors(result.found)}")
    raise typer.Exit(not all(result.sound for _, result in results))


@app.command()
def info(as_json: JsonOption = False) -> None:
    """Show the ledger's version, rows and size, and the time from which on it has rows."""
    with ledger_there(settings_of(None)) as books:
        known = ledger_info(books)
    fields = {**asdict(known), "bytes_per_request": known.bytes_per_request}
    if as_json:
        echo_json(fields)
    else:
        _list(fields)


@app.command()
def migrate(
    to: Annotated[int | None, typer.Option(metavar="N", help="Else the newest version.", min=1)] = None,
    lose_data: Annotated[bool, typer.Option("--lose-data", help="Give up what an older version can't hold.")] = False,
) -> None:
    """Migrate the ledger to a version: up, as `lowpass serve` does, or down, for an older lowpass."""
    with ledger_of(settings_of(None)) as books, failing(ValueError, WouldLose):
        before = books.version()
        version = books.migrate(to, lose_data=lose_data)
    typer.echo(f"{books.name}: version {version}, {'as before' if version == before else f'was {before}'}")


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="A new file; only its owner may read it.")], as_json: JsonOption = False
) -> None:
    """Copy the whole ledger into one file, as of one moment, while gateways keep running."""
    with ledger_there(settings_of(None)) as books, failing(OSError, about=f"{file} can't be written: "):
        try:
            copied = write_backup(books, file, _progress("rows copied"))
        except FileExistsError:
            fail(f"{file} is there already, and is not written over: name another file")
    rows = f"{sum(copied.rows.values()):,} rows, {copied.size:,} bytes"
    echo_json(copied) if as_json else typer.echo(f"{file}: {rows}, version {copied.version}")


@app.command()
def restore(file: Annotated[Path, typer.Argument(help="What `lowpass ledger backup` wrote.")]) -> None:
    """Fill an empty ledger, in a file or in PostgreSQL, from a backup."""
    unreadable = failing(OSError, about=f"{file} can't be read: ")
    with ledger_of(settings_of(None)) as books, failing(BackupBroken, NotEmpty), unreadable:
        copied = restore_backup(books, file, _progress("rows restored"))
    typer.echo(f"{books.name}: {sum(copied.rows.values()):,} rows of {file}")


@app.command()
def adjust(
    request: Annotated[str, typer.Argument(help="The id of a request.")],
    cost: Annotated[str, typer.Option(help="What it cost in all, in USD.")],
    reason: Annotated[str, typer.Option(help="Why, for those who read the books.")],
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Correct the charge of a request: adds a row that its budgets, reports and exports take into account."""
    from router.cli.offline import adjust_request

    settings = settings_of(policy)
    with ledger_there(settings) as books, failing(StoreUnavailable, about=_UNCHANGED), failing(NotAdjustable):
        nano = nano_from_usd(amount_of("--cost", cost))
        if not reason.strip() or len(reason) > 500 or not reason.isprintable():
            fail("--reason: write 1 to 500 printable characters")
        adjusted = adjust_request(settings, books, request, nano, reason.strip())
    if as_json:
        echo_json(adjusted)
        return
    after = usd_text(adjusted.before + adjusted.added)
    accounts = ", ".join(booking.account for booking in adjusted.bookings) or "no budget"
    typer.echo(f"{request}: ${usd_text(adjusted.before)} is ${after} now ({accounts}); correction {adjusted.id}")


@app.command()
def reconcile(
    provider: Annotated[str, typer.Argument(help="As the ledger names it, such as openai.")],
    file: Annotated[Path, typer.Argument(help="What the provider exports of its costs, as CSV.")],
    book: Annotated[bool, typer.Option("--book", help="Book the differences, and learn from them.")] = False,
    today: Annotated[bool, typer.Option("--today", help="Take today (UTC) too, though it is not over.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="What FILE lacks on its days was not billed.")] = False,
    any_size: Annotated[bool, typer.Option("--any-size", help="Book over ten times what the ledger has, too.")] = False,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare what a provider billed with the ledger, by day and model. Fails if a difference is not booked."""
    from router.cli.offline import reconcile as compare

    settings = settings_of(policy)
    with ledger_there(settings) as books:
        with failing(OSError, UnicodeDecodeError, about=f"{file} can't be read: "):
            lines = file.read_text("utf-8-sig").splitlines()
        stated = failing(StatementError, about=f"{file}: ")
        with failing(StoreUnavailable, about=_UNCHANGED), failing(LookupError), stated:
            reconciled = compare(
                settings, books, provider, lines, book=book, today=today, whole=whole, any_size=any_size
            )
    if reconciled.left_out:
        typer.echo(
            f"{reconciled.left_out} lines of today (UTC) or later are left out: it is not over (--today takes it)",
            err=True,
        )
    echo_json(reconciled) if as_json else _show_differences(reconciled)
    rest = [difference for difference in reconciled.comparison.differences if difference.added != difference.booked]
    if book and rest and not as_json:
        about = "the ledger lacks their rows, or a crash left some of these open: those are settled 15 minutes later"
        typer.echo(f"{len(rest)} differences are not booked: {about}, then say it again", err=True)
    raise typer.Exit(bool(rest))


@app.command()
def prices(
    forget: Annotated[str, typer.Option(metavar="MODEL", help="Its own price counts again.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List prices that providers' statements corrected, with the evidence."""
    with ledger_there(settings_of(None)) as books, failing(LookupError):
        if forget:
            with books.writing() as connection:
                revoke_price(connection, forget, COMMAND_LINE)
        with books.reading() as connection:
            known = corrected_ratios(connection)
    names = ("model", "factor", "at_ms", "source")
    if as_json:
        echo_json([dict(zip(names, row, strict=True)) for row in known])
    else:
        show_rows("model:label factor:count evidence", ((model, f"{by:.4f}", why) for model, by, _, why in known))


@app.command()
def upkeep() -> None:
    """Archive and sum up settled rows, delete those kept long enough. Gateways do the same by themselves."""
    settings = settings_of(None)
    with ledger_of(settings) as books:
        books.migrate()
        moved, dropped = run_upkeep(books, now_ms(), settings.keep_rows_ms, all_of_them=True)
    typer.echo(f"moved {moved:,} requests; dropped the rows of {dropped:,}")


def _show_differences(reconciled: "Reconciled") -> None:
    comparison = reconciled.comparison
    if comparison.differences:
        rows = (
            (
                *(date_of(row.day), row.model),
                *map(usd_text, (row.billed, row.ledger, row.added, row.booked)),
                *(row.cause, row.explanation),
            )
            for row in comparison.differences
        )
        show_rows(
            "day:label model:label billed:count ledger:count difference:count booked:count cause explanation", rows
        )
    sums = f"billed ${usd_text(comparison.billed)}, ledger ${usd_text(comparison.ledger)}"
    summary = f"{reconciled.form}, {comparison.days} days: {sums}, {len(comparison.differences)} differences"
    typer.echo(f"{summary}, {reconciled.corrections} corrections written")
    if comparison.unnamed:
        names = ", ".join(comparison.unnamed)
        typer.echo(f"not compared, as the file has no line of it for a day: {names} (say 0 if nothing was billed)")
    for target, factor in sorted(comparison.factors.items()):
        typer.echo(f"{target}: what was estimated was billed {factor:.2f} times")
    for model, (_, evidence) in sorted(comparison.ratios.items()):
        typer.echo(f"{model}: {evidence}")


def _list(fields: dict[str, object]) -> None:
    """Prints one line for each field; times as dates, numbers with commas."""
    for name, value in fields.items():
        if isinstance(value, dict):
            _list({f"{name} of {table}": count for table, count in value.items() if count})
            continue
        text = "-" if value is None else str(value)
        if name.endswith("_ms") and isinstance(value, int):
            text = f"{datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        elif isinstance(value, int | float):
            text = f"{value:,.0f}"
        typer.echo(f"{name.removesuffix('_ms').replace('_', ' '):<28}{text}")


def _progress(noun: str) -> Callable[[int], object]:
    """Returns a callback that shows progress on a terminal; elsewhere it does nothing."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda count: typer.echo(f"{count:,} {noun}\r", nl=False, err=True)
