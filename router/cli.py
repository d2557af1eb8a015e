"""`lowpass`: every command. Imports happen inside the commands, so that the shell stays fast."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer

if TYPE_CHECKING:
    from router.settings import Settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A cost-aware inference gateway.")
keys = typer.Typer(no_args_is_help=True, help="API keys: stored as a hash, shown once.")
app.add_typer(keys, name="keys")

PolicyOption = Annotated[Optional[Path], typer.Option("--policy", help="Policy file; else LOWPASS_POLICY.")]  # noqa: UP045
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def main() -> None:
    app()


@app.command()
def serve(
    policy: PolicyOption = None,
    host: Annotated[Optional[str], typer.Option(help="Address to listen on.")] = None,  # noqa: UP045
    port: Annotated[Optional[int], typer.Option(help="0 picks a free one.", min=0, max=65_535)] = None,  # noqa: UP045
) -> None:
    """Start the gateway and the local engines that the policy needs."""
    from router.errors import ConfigError
    from router.serve import EngineError, ServeError, run

    try:
        run(_settings(policy, host, port))
    except (ServeError, EngineError) as error:
        _fail(str(error))
    except ConfigError as error:
        _problems(error)


@app.command()
def check(policy: PolicyOption = None, as_json: JsonOption = False) -> None:
    """Read a policy file and list everything that is wrong with it."""
    from router.app import inspect_policy

    settings = _settings(policy)
    problems = inspect_policy(settings.policy)
    if as_json:
        _json({"policy": str(settings.policy), "problems": problems})
    else:
        for problem in problems:
            typer.echo(str(problem))
        typer.echo(f"{settings.policy}: {len(problems)} problems" if problems else f"{settings.policy}: sound")
    raise typer.Exit(bool(problems))


@app.command()
def explain(
    request: Annotated[Path, typer.Argument(help="A chat request as JSON; - reads standard input.")],
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what would happen to a request: classification, targets, estimates, choice. Nobody is called."""
    from router.app import explain_request
    from router.errors import ClientError, ConfigError
    from router.report.explained import table

    try:
        body = sys.stdin.buffer.read() if str(request) == "-" else request.read_bytes()
        explained = explain_request(_settings(policy).policy, body)
    except OSError as error:
        _fail(f"{request} can't be read: {error.strerror}")
    except ClientError as error:
        _fail(f"{request}: {error.message}")
    except ConfigError as error:
        _problems(error)
    if as_json:
        _json(explained)
    else:
        _print(table(explained))


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="spend or budgets.")] = "spend",
    by: Annotated[str, typer.Option(help="model, target, key, tag, day, route, class or task.")] = "target",
    since: Annotated[str, typer.Option(help="A date, a time, or an age such as 7d or 24h.")] = "",
    until: Annotated[str, typer.Option(help="Likewise.")] = "",
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """What was spent, on what."""
    from router.errors import ClientError, ConfigError
    from router.report import render
    from router.report.read import read

    settings = _settings(policy)
    if not settings.ledger.exists():
        _fail(f"there is no ledger at {settings.ledger} yet: `lowpass serve` makes it")
    try:
        found = read(name, settings.ledger, settings.policy, by=by, since=since, until=until)
    except ClientError as error:
        _fail(error.message)
    except ConfigError as error:
        _problems(error)
    if as_json:
        typer.echo(render.as_json(found).decode())
    else:
        _print(render.table(found))


@app.command()
def budgets(policy: PolicyOption = None, as_json: JsonOption = False) -> None:
    """Every budget: limit, spent, held, left, reset."""
    report("budgets", policy=policy, as_json=as_json)


Names = Annotated[Optional[list[str]], typer.Option(help="May be given several times.")]  # noqa: UP045


@keys.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    route: Names = None,
    target: Names = None,
    tag: Names = None,
    scope: Annotated[Optional[list[str]], typer.Option(help="reports: may see reports.")] = None,  # noqa: UP045
    budget: Annotated[str, typer.Option(help="A budget of the policy that binds it.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a key. Without --route and --target it may use everything."""
    from router.ledger import keys as store

    with _ledger() as connection:
        try:
            key, secret = store.create(
                connection,
                name,
                routes=route or (),
                targets=target or (),
                tags=tag or (),
                scopes=scope or (),
                budget=budget,
            )
        except ValueError as error:
            _fail(str(error))
    if as_json:
        _json({"id": key.id, "name": key.name, "key": secret})
    else:
        typer.echo(secret)
        typer.echo(f"Key '{key.name}'. It is not stored and will not be shown again.", err=True)
