"""Commands that read the ledger and the budgets."""

from typing import Annotated

import typer

from router.cli.app import JsonOption, PolicyOption, SinceOption, UntilOption, app
from router.terminal import fail, ledger_of, settings_of, show, tell_problems


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="spend, budgets, egress or incidents.")] = "spend",
    by: Annotated[str, typer.Option(help="model, target, key, tag, day, route, class or task.")] = "target",
    since: SinceOption = "",
    until: UntilOption = "",
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """What was spent, on what; where it went; what is left. Fails where something broke the policy."""
    from router.errors import ClientError, ConfigError
    from router.offline import budget_report
    from router.report import read, render
    from router.types.store import StoreUnavailable

    settings = settings_of(policy)
    try:
        with ledger_of(settings) as ledger:
            if not ledger.exists():
                fail(f"there is no ledger at {ledger.name} yet: `lowpass serve` makes it")
            if name == "budgets":
                found = budget_report(settings)
            else:
                found = read.read(ledger, name, by=by, since=since, until=until)
    except ClientError as error:
        fail(error.message)
    except ConfigError as error:
        tell_problems(error)
    except StoreUnavailable as error:
        fail(f"the store of the budgets does not answer: {error}")
    if as_json:
        typer.echo(render.as_json(found).decode())
    else:
        show(render.table(found))
    raise typer.Exit(not found.sound)


@app.command()
def budgets(policy: PolicyOption = None, as_json: JsonOption = False) -> None:
    """Every pot of every budget: limit, spent, held, left, reset."""
    report("budgets", policy=policy, as_json=as_json)
