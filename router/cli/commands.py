"""Commands without a group: gateway, policy, explanations, reports and replays."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from router.cli.app import (
    JsonOption,
    PolicyOption,
    SinceOption,
    UntilOption,
    app,
    echo_json,
    errors,
    fail,
    failing,
    ledger_of,
    ledger_there,
    settings_of,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.ledger.ledger import Ledger
    from router.report.query import Parameters
    from router.report.report import Report
    from router.settings import Settings
    from router.types.target import Target


@app.command()
def serve(
    policy: PolicyOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; else LOWPASS_HOST or 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="0 picks a free one.", min=0, max=65_535)] = None,
    workers: Annotated[str | None, typer.Option(metavar="N", help="Processes; else LOWPASS_WORKERS or 1.")] = None,
) -> None:
    """Start the gateway and the local engines that its policy needs."""
    from router.server import StartError, run

    with failing(StartError):
        run(settings_of(policy, host, port, workers))


@app.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="The same as --policy.")] = None,
    policy: PolicyOption = None,
    prices: Annotated[bool, typer.Option("--prices", help="Look at prices and what was charged instead.")] = False,
    days: Annotated[int, typer.Option(help="With --prices: list what is unconfirmed for longer.", min=0)] = 90,
    as_json: JsonOption = False,
) -> None:
    """Read a policy file and list everything that is wrong with it."""
    from router.config.load import inspect_policy, region_notes

    settings = settings_of(file or policy)
    if prices:
        _check_prices(settings, days, as_json)
    path = settings.policy
    problems = inspect_policy(path)
    notes = () if problems else region_notes(path)
    if as_json:
        echo_json({"policy": str(path), "problems": problems, "notes": notes})
    else:
        for line in (*problems, *notes):
            typer.echo(str(line))
        typer.echo(f"{path}: {errors(len(problems))}")
    raise typer.Exit(bool(problems))


def _check_prices(settings: "Settings", days: int, as_json: bool) -> NoReturn:
    """Lists unconfirmed catalog prices and recomputes the costs in the ledger; fails if one differs."""
    from router.cli.offline import known_prices
    from router.config.load import unconfirmed_prices
    from router.report.recompute import recompute

    stale = unconfirmed_prices(days)
    with ledger_of(settings) as ledger:
        recomputed = recompute(ledger, known_prices(ledger)) if ledger.exists() else None
    if as_json:
        echo_json({"unconfirmed": stale, "ledger": recomputed})
    else:
        summary = f"{len(stale)} prices of the catalog are unconfirmed for {days} days"
        typer.echo("\n".join(map(str, [*stale, summary, *([*recomputed.changed, recomputed] if recomputed else ())])))
    raise typer.Exit(bool(recomputed and recomputed.changed))


@app.command()
def explain(
    request: Annotated[
        Path, typer.Argument(help="A chat request as JSON, - for standard input, or a served one's id.")
    ],
    header: Annotated[
        list[str] | None, typer.Option("--header", help="As a client sends it: 'x-lowpass-app: billing'.")
    ] = None,
    key: Annotated[str, typer.Option("--key", metavar="NAME", help="The key that asks; else none.")] = "",
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what would happen to a request, or what happened to a served one: classes, targets, estimates, choice."""
    from msgspec import Raw

    from router.cli.explain import explain_request, explanation
    from router.decide.explain import encode, with_reason
    from router.errors import ClientError

    if re.fullmatch("[0-9a-f]{32}", str(request)) and not request.exists():
        report("request", str(request), policy=policy, as_json=as_json)
    with failing(OSError, about=f"{request} can't be read (of a served request give the id): "):
        body = sys.stdin.buffer.read() if str(request) == "-" else request.read_bytes()
    headers = [
        (name.strip().encode(), value.strip().encode())
        for name, _, value in (line.partition(":") for line in header or ())
    ]
    with failing(LookupError), failing(ClientError, about=f"{request}: "):
        explained = explain_request(settings_of(policy), body, headers, key)
    echo_json(Raw(with_reason(encode(explained)))) if as_json else show(explanation(explained))


# Commands that read the ledger and the budgets.


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
    """Report what was spent on what, where data went, and what it was worth. Fails if something broke the policy."""
    from router.cli.delivery import DeliveryError, Format, deliver, format_of, written_as
    from router.report.query import Parameters
    from router.report.render import table as drawn
    from router.types.clock import now_ms

    settings = settings_of(policy)
    form = format_of({"json": as_json, "csv": as_csv, "html": as_html}, table, out)
    if form is None:
        fail("a report has one form: --json, --csv or --html; --table is one of CSV's")
    question = Parameters(
        by=by, where=tuple(where or ()), since=since, until=until, zone=zone, baseline=baseline, subject=subject
    )
    answer = _read(settings, name, question)
    with failing(DeliveryError, about="the report was not delivered: "):
        if out or webhook or email:
            content = written_as(answer, form, table) if out else b""
            deliver(answer, content, os.environ, settings.home, out, webhook, email or ())
        elif form is Format.TEXT:
            show(drawn(answer, now_ms()))
        else:
            typer.echo(written_as(answer, form, table), nl=False)
    raise typer.Exit(not answer.sound)


@app.command()
def budgets(policy: PolicyOption = None, as_json: JsonOption = False) -> None:
    """Show every account of every budget: limit, spent, held, left, reset."""
    report("budgets", policy=policy, as_json=as_json)


def _read(settings: "Settings", name: str, question: "Parameters") -> "Report":
    from msgspec import structs

    from router.report.catalog import NAME, contents, definition, read
    from router.types.account import StoreUnavailable

    if name == NAME:
        return contents()
    silent = failing(StoreUnavailable, about="the store of the budgets does not answer: ")
    with silent, ledger_there(settings) as ledger:
        about = definition(name)
        if about.needs_pots:
            from router.cli.offline import budget_standings  # imports the whole gateway
        standings = budget_standings(settings) if about.needs_pots else None
        # Loading the policy takes longer than most reports do, so it is read only where needed.
        named = about.reads_policy or question.where or question.baseline
        targets, which = _policy_read(settings, ledger) if named else ({}, "")
        answer = read(ledger, name, question, targets, standings)
        return structs.replace(answer, note=f"{answer.note} {which}") if about.reads_policy else answer


def _policy_read(settings: "Settings", ledger: "Ledger") -> "tuple[Mapping[str, Target], str]":
    """Returns the targets of the policy file, and a note that names the file. The note says so if the ledger's newest
    request had another policy, or if the file can't be read; then there are no targets."""
    from router.config.load import load_policy
    from router.errors import ConfigError
    from router.ledger.rows import newest

    path = settings.policy
    try:
        config = load_policy(path)
    except ConfigError:
        return {}, f"{path} can't be read: what a policy says is left out."
    with ledger.reading() as connection:
        latest = newest(connection, 1)
    if any(record.request["policy"] not in ("", config.in_force.hash) for record in latest):
        remedy = "name that one with --policy or LOWPASS_POLICY"
        return config.targets, f"By {path}, which is not the policy of the newest request: {remedy}."
    return config.targets, f"By {path}."


# `lowpass replay`: recorded traffic under another policy.

MAX_PROCESSES = 8


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
    """Replay recorded traffic under another policy: cost, right answers, refusals, where data goes."""
    from router.cli.delivery import Format, format_of, written_as
    from router.config.load import load_policy
    from router.errors import ConfigError
    from router.replay.replay import as_report, time_range
    from router.replay.replay import replay as replay_range
    from router.report.query import Parameters
    from router.report.render import table as drawn
    from router.types.clock import now_ms

    form = format_of({"json": as_json, "csv": as_csv}, table, None)
    if form is None:
        fail("a replay has one form: --json or --csv; --table is one of CSV's")
    with failing():
        others = [] if against is None else [load_policy(against)]
    current = settings_of(None).policy
    if against is None and os.environ.get("LOWPASS_POLICY") and current != policy:
        with suppress(ConfigError):  # the policy in force is optional
            others = [load_policy(current)]
    with failing():
        config = load_policy(policy)
    cores = processes or min(os.cpu_count() or 1, MAX_PROCESSES)
    with ledger_there(settings_of(policy)) as ledger, failing():
        about = time_range(ledger, Parameters(since=since, until=until, where=tuple(where or ())))
        answer = as_report(replay_range(ledger, config, *about, others=others, processes=cores))
        show(drawn(answer, now_ms())) if form is Format.TEXT else typer.echo(written_as(answer, form, table), nl=False)
