"""Commands that read the ledger and the budgets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.app import JsonOption, PolicyOption, SinceOption, UntilOption, app
from router.terminal import fail, ledger_of, settings_of, show, tell_problems

if TYPE_CHECKING:
    from router.cli.delivery.deliver import Wanted
    from router.report.asked import Question
    from router.report.report import Report
    from router.settings import Settings


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="Which; `list` names them all.")] = "spend",
    subject: Annotated[str, typer.Argument(help="The request or session that it is about.")] = "",
    by: Annotated[str, typer.Option(help="Groups, with commas: team,day.")] = "",
    where: Annotated[list[str] | None, typer.Option(help="target=a,b or target!=a; all of them hold.")] = None,
    since: SinceOption = "",
    until: UntilOption = "",
    zone: Annotated[str, typer.Option(help="IANA time zone in which days begin; else UTC.")] = "",
    baseline: Annotated[str, typer.Option(help="A target to compare with.")] = "",
    policy: PolicyOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The rows, for a spreadsheet.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="A page that needs nothing else.")] = False,
    table: Annotated[str, typer.Option(help="With --csv: which of its tables.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write a file; .json, .csv or .html say as what.")] = None,
    webhook: Annotated[str, typer.Option(help="Post it as JSON to this address.")] = "",
    email: Annotated[list[str] | None, typer.Option(help="Send it there, through LOWPASS_SMTP_URL.")] = None,
) -> None:
    """What was spent, on what; where it went; what it was worth. Fails where something broke the policy."""
    from router.cli.delivery.deliver import Wanted
    from router.cli.delivery.formats import chosen
    from router.report.asked import Question

    settings = settings_of(policy)
    form = chosen({"json": as_json, "csv": as_csv, "html": as_html}, table, out)
    if form is None:
        fail("a report has one form: --json, --csv or --html; --table is one of CSV's")
    question = Question(
        by=by, where=tuple(where or ()), since=since, until=until, zone=zone, baseline=baseline, subject=subject
    )
    found = _read(settings, name, question)
    _tell(found, Wanted(form=form, table=table, out=out, webhook=webhook, email=tuple(email or ())), settings)
    raise typer.Exit(not found.sound)


@app.command()
def budgets(policy: PolicyOption = None, as_json: JsonOption = False) -> None:
    """Every pot of every budget: limit, spent, held, left, reset."""
    report("budgets", policy=policy, as_json=as_json)


def _read(settings: "Settings", name: str, question: "Question") -> "Report":
    from router.errors import ClientError, ConfigError
    from router.offline import budget_report, policy_targets
    from router.report.contents import NAME, contents
    from router.report.read import definition, read
    from router.types.store import StoreUnavailable

    if name == NAME:
        return contents()
    try:
        with ledger_of(settings) as ledger:
            if not ledger.exists():
                fail(f"there is no ledger at {ledger.name} yet: `lowpass serve` makes it")
            pots = budget_report(settings) if definition(name).needs_pots else None
            return read(ledger, name, question, policy_targets(settings), pots)
    except ClientError as error:
        fail(error.message)
    except ConfigError as error:
        tell_problems(error)
    except StoreUnavailable as error:
        fail(f"the store of the budgets does not answer: {error}")


def _tell(found: "Report", wanted: "Wanted", settings: "Settings") -> None:
    """On standard output, unless it goes elsewhere."""
    import os

    from router.cli.delivery.deliver import deliver
    from router.cli.delivery.formats import Format, written_as
    from router.cli.delivery.tries import Undelivered
    from router.errors import ClientError
    from router.report.table import table

    try:
        if wanted.anywhere:
            deliver(found, wanted, os.environ, settings.home)
        elif wanted.form is Format.TEXT:
            show(table(found))
        else:
            typer.echo(written_as(found, wanted.form, wanted.table), nl=False)
    except Undelivered as failure:
        fail(f"the report was not delivered: {failure}")
    except ClientError as error:
        fail(error.message)
