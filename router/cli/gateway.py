"""Commands around one policy: serve it, check it, explain what it does."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from router.cli.app import JsonOption, PolicyOption, app
from router.cli.reports import report
from router.cli.terminal import echo_json, errors, failing, ledger_of, settings_of, show

if TYPE_CHECKING:
    from router.settings import Settings


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
    """Lists prices that were not confirmed lately, and prices the ledger's attempts again; fails where one differs."""
    from router.cli.offline import known_prices
    from router.config.load import unconfirmed_prices
    from router.report.recompute import recompute

    stale = unconfirmed_prices(days)
    with ledger_of(settings) as ledger:
        again = recompute(ledger, known_prices(ledger)) if ledger.exists() else None
    if as_json:
        echo_json({"unconfirmed": stale, "ledger": again})
    else:
        summary = f"{len(stale)} prices of the catalog are unconfirmed for {days} days"
        typer.echo("\n".join(map(str, [*stale, summary, *([*again.changed, again] if again else ())])))
    raise typer.Exit(bool(again and again.changed))


@app.command()
def explain(
    request: Annotated[
        Path, typer.Argument(help="A chat request as JSON, - for standard input, or a served one's id.")
    ],
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what would happen to a request, or what came of a served one: classes, targets, estimates, choice."""
    from msgspec import Raw

    from router.cli.offline import explain_request
    from router.decide.explain import encode, with_reason
    from router.errors import ClientError
    from router.report.explained import table

    if re.fullmatch("[0-9a-f]{32}", str(request)) and not request.exists():
        report("request", str(request), policy=policy, as_json=as_json)
    with failing(OSError, about=f"{request} can't be read (of a served request give the id): "):
        body = sys.stdin.buffer.read() if str(request) == "-" else request.read_bytes()
    with failing(ClientError, about=f"{request}: "):
        explained = explain_request(settings_of(policy), body)
    echo_json(Raw(with_reason(encode(explained)))) if as_json else show(table(explained))
