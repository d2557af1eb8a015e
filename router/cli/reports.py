"""Commands that read the ledger and the budgets."""

from typing import Annotated

import typer

from router.cli.app import JsonOption, PolicyOption, SinceOption, UntilOption, app
from router.terminal import fail, ledger_of, settings_of, show, tell_problems


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
) -> None:
    """What was spent, on what; where it went; what it was worth. Fails where something broke the policy."""
    from router.errors import ClientError, ConfigError
    from router.offline import budget_report, policy_targets
    from router.report import read, render
    from router.report.asked import Question
    from router.report.table import table
    from router.types.store import StoreUnavailable

    settings = settings_of(policy)
    question = Question(
        by=by, where=tuple(where or ()), since=since, until=until, zone=zone, baseline=baseline, subject=subject
    )
    try:
        with ledger_of(settings) as ledger:
            if not ledger.exists():
                fail(f"there is no ledger at {ledger.name} yet: `lowpass serve` makes it")
            pots = budget_report(settings) if read.definition(name).needs_pots else None
            found = read.read(ledger, name, question, policy_targets(settings), pots)
    except ClientError as error:
        fail(error.message)
    except ConfigError as error:
        tell_problems(error)
    except StoreUnavailable as error:
        fail(f"the store of the budgets does not answer: {error}")
    if as_json:
        typer.echo(render.as_json(found).decode())
    else:
        show(table(found))
    raise typer.Exit(not found.sound)


@app.command()
def budgets(policy: PolicyOption = None, as_json: JsonOption = False) -> None:
    """Every pot of every budget: limit, spent, held, left, reset."""
    report("budgets", policy=policy, as_json=as_json)
