"""`lowpass replay`: another policy over recorded traffic."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.app import JsonOption, SinceOption, UntilOption, app
from router.terminal import fail, ledger_of, settings_of, show, tell_problems

if TYPE_CHECKING:
    from router.config.config import Config
    from router.report.asked import Question
    from router.report.report import Report

MOST_PROCESSES = 8


@app.command()
def replay(
    policy: Annotated[Path, typer.Option("--policy", help="The policy to try.")],
    against: Annotated[
        Path | None, typer.Option(help="The policy that the traffic was decided under; else LOWPASS_POLICY.")
    ] = None,
    since: SinceOption = "",
    until: UntilOption = "",
    where: Annotated[list[str] | None, typer.Option(help="route=a,b or class!=c; all of them hold.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, max=64, help="Else one a core.")] = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The rows, for a spreadsheet.")] = False,
    table: Annotated[str, typer.Option(help="With --csv: which of its tables.")] = "",
) -> None:
    """What another policy would have made of recorded traffic: cost, right answers, refusals, where data goes."""
    from router.cli.delivery.formats import Format, chosen, written_as
    from router.errors import ClientError
    from router.report.asked import Question
    from router.report.table import table as drawn

    form = chosen({"json": as_json, "csv": as_csv}, table, None)
    if form is None:
        fail("a replay has one form: --json or --csv; --table is one of CSV's")
    question = Question(since=since, until=until, where=tuple(where or ()))
    others = _others(policy, against)
    found = _replayed(policy, others, question, processes or min(os.cpu_count() or 1, MOST_PROCESSES))
    try:
        show(drawn(found)) if form is Format.TEXT else typer.echo(written_as(found, form, table), nl=False)
    except ClientError as error:
        fail(error.message)


def _replayed(policy: Path, others: "list[Config]", question: "Question", processes: int) -> "Report":
    from router.errors import ClientError
    from router.replay import as_report
    from router.replay import replay as again
    from router.replay.question import stretch

    config, settings = _config(policy), settings_of(policy)
    try:
        with ledger_of(settings) as ledger:
            if not ledger.exists():
                fail(f"there is no ledger at {ledger.name} yet: `lowpass serve` makes it")
            about = stretch(ledger, question)
            window = (about.since_ms, about.until_ms, about.where)
            return as_report(again(ledger, config, *window, others=others, processes=processes))
    except ClientError as error:
        fail(error.message)


def _config(path: Path) -> "Config":
    from router.errors import ConfigError
    from router.policies import load_policy, unlaunched

    try:
        return load_policy(path, unlaunched(path))
    except ConfigError as error:
        tell_problems(error)


def _others(policy: Path, against: Path | None) -> "list[Config]":
    """What is named must be sound; the policy in force helps where it can be read."""
    from router.errors import ConfigError
    from router.policies import load_policy, unlaunched

    if against is not None:
        return [_config(against)]
    current = settings_of(None).policy
    if not os.environ.get("LOWPASS_POLICY") or current == policy:
        return []
    try:
        return [load_policy(current, unlaunched(current))]
    except ConfigError:
        return []
