"""`lowpass`: every command. Imports happen inside the commands, so that the shell stays fast."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from router.terminal import echo_json, fail, ledger_of, settings_of, show, tell_problems, writing

if TYPE_CHECKING:
    from router.settings import Settings

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="A cost-aware inference gateway."
)
keys = typer.Typer(no_args_is_help=True, help="API keys: stored as a hash, shown once.")
app.add_typer(keys, name="keys")
bench = typer.Typer(no_args_is_help=True, help="Measurements on this machine; they need a checkout.")
app.add_typer(bench, name="bench")

PolicyOption = Annotated[Path | None, typer.Option("--policy", help="Policy file; else LOWPASS_POLICY.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def main() -> None:
    app()


@app.command()
def serve(
    policy: PolicyOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; else LOWPASS_HOST or 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="0 picks a free one.", min=0, max=65_535)] = None,
    workers: Annotated[str | None, typer.Option(metavar="N", help="Processes; else LOWPASS_WORKERS or 1.")] = None,
) -> None:
    """Start the gateway and the local engines that its policy needs."""
    from router.errors import ConfigError
    from router.server import StartError, run

    try:
        run(settings_of(policy, host, port, workers))
    except StartError as error:
        fail(str(error))
    except ConfigError as error:
        tell_problems(error)


@app.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="The same as --policy.")] = None,
    policy: PolicyOption = None,
    prices: Annotated[bool, typer.Option("--prices", help="Look at the catalog's prices instead.")] = False,
    days: Annotated[int, typer.Option(help="With --prices: unconfirmed for longer is stale.", min=0)] = 90,
    as_json: JsonOption = False,
) -> None:
    """Read a policy file and list everything that is wrong with it."""
    from router.policies import inspect_policy

    settings = settings_of(file or policy)
    if prices:
        _check_prices(settings, days, as_json)
    path = settings.policy
    problems = inspect_policy(path)
    if as_json:
        echo_json({"policy": str(path), "problems": problems})
    else:
        for problem in problems:
            typer.echo(str(problem))
        typer.echo(f"{path}: {len(problems)} to mend" if problems else f"{path}: sound")
    raise typer.Exit(bool(problems))


def _check_prices(settings: "Settings", days: int, as_json: bool) -> NoReturn:
    """Lists where the catalog and the installed price lists differ, and prices the ledger's attempts again; fails where
    a difference has no reason."""
    from router.policies import compare_prices, recompute_ledger

    found = compare_prices(days)
    with ledger_of(settings) as ledger:
        again = recompute_ledger(ledger) if ledger.exists() else None
    if as_json:
        echo_json({"prices": found, "ledger": again})
    else:
        lines = [*found.disagreements, *found.stale, found, *([*again.changed, again] if again else ())]
        typer.echo("\n".join(map(str, lines)))
    raise typer.Exit(bool(found.unexplained or (again and again.changed)))


@app.command()
def explain(
    request: Annotated[Path, typer.Argument(help="A chat request as JSON; - reads standard input.")],
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what would happen to a request: classification, targets, estimates, choice. Nobody is called."""
    from router.errors import ClientError, ConfigError
    from router.offline import explain_request
    from router.report.explained import table

    try:
        body = sys.stdin.buffer.read() if str(request) == "-" else request.read_bytes()
        explained = explain_request(settings_of(policy), body)
    except OSError as error:
        fail(f"{request} can't be read: {error.strerror}")
    except ClientError as error:
        fail(f"{request}: {error.message}")
    except ConfigError as error:
        tell_problems(error)
    echo_json(explained) if as_json else show(table(explained))


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="spend, budgets, egress or incidents.")] = "spend",
    by: Annotated[str, typer.Option(help="model, target, key, tag, day, route, class or task.")] = "target",
    since: Annotated[str, typer.Option(help="A date, a time, or an age such as 7d or 24h.")] = "",
    until: Annotated[str, typer.Option(help="Likewise.")] = "",
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


ManyOption = Annotated[list[str] | None, typer.Option(help="May be given several times.")]


@keys.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    route: ManyOption = None,
    target: ManyOption = None,
    tag: ManyOption = None,
    scope: Annotated[list[str] | None, typer.Option(help="`reports` opens reports and the dashboard.")] = None,
    budget: Annotated[str, typer.Option(help="A budget of the policy that binds it.")] = "",
    team: Annotated[str, typer.Option(help="The team whose budgets bind it.")] = "",
    organisation: Annotated[str, typer.Option(help="Likewise.")] = "",
    min_class: Annotated[str, typer.Option(help="A class that binds everything it sends.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a key. Without --route and --target it may use everything."""
    from router.ledger import keys as store

    given: dict[str, Any] = {"routes": route or (), "targets": target or (), "tags": tag or (), "scopes": scope or ()}
    given |= {"budget": budget, "team": team, "organisation": organisation, "min_class": min_class}
    with writing() as connection:
        try:
            key, secret = store.create(connection, name, **given)
        except ValueError as error:
            fail(str(error))
    if as_json:
        echo_json({"id": key.id, "name": key.name, "key": secret})
    else:
        typer.echo(secret)
        typer.echo(f"This is the key of '{key.name}'. It is stored as a hash and will not be shown again.", err=True)


@keys.command("list")
def keys_list(as_json: JsonOption = False) -> None:
    """Every key, without its secret."""
    from router.ledger import keys as store

    with writing() as connection:
        found = store.every(connection)
    if as_json:
        echo_json(found)
        return
    for key in found:
        state = "revoked" if key.revoked_ms is not None else "in force"
        may = ", ".join((*key.routes, *key.targets)) or "everything"
        whose = " of ".join(filter(None, (key.team, key.organisation))) or "-"
        rest = f"scopes {', '.join(key.scopes) or '-'}  team {whose}  at least {key.min_class or '-'}"
        typer.echo(f"{key.id}  {key.name:<20}  {state}  may use {may}  {rest}")


@keys.command("revoke")
def keys_revoke(name: Annotated[str, typer.Argument(help="Name or id.")]) -> None:
    """End a key; a running gateway notices within a second."""
    from router.ledger import keys as store

    with writing() as connection:
        try:
            key = store.revoke(connection, name)
        except LookupError as error:
            fail(str(error.args[0]))
    typer.echo(f"revoked '{key.name}' ({key.id})")


@bench.command("budgets")
def bench_budgets(
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything: a minute instead of several.")] = False,
    only: Annotated[str, typer.Option(help="Some of overshoot,crowds,kills,holds,cost.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Overshoot, refusals, crashes and cost of budgets, with real processes and stores."""
    try:
        from bench.budgets.run import PARTS, LoadError, measure, render
    except ImportError as error:
        fail(f"this needs a checkout with the dev requirements, and its folder as the current one ({error})")
    parts = only.split(",") if only else PARTS
    if unknown := ", ".join(part for part in parts if part not in PARTS):
        fail(f"--only does not know {unknown}: choose of {', '.join(PARTS)}")
    try:
        found = measure(parts, quick)
    except LoadError as error:
        fail(str(error))
    echo_json(found) if as_json else typer.echo(render(found), nl=False)


@bench.command("sensitivity")
def bench_sensitivity(
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything: seconds instead of minutes.")] = False,
    only: Annotated[str, typer.Option(help="Some of identifiers,secrets,evasions,names,speed,adverse,classes.")] = "",
    dev: Annotated[bool, typer.Option("--dev", help="The half that may be looked at, with kinds of misses.")] = False,
    must: Annotated[bool, typer.Option("--check", help="Exit status 1 if a goal is missed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What the detectors see, and what they wrongly see, in sets that they were not made on."""
    try:
        from bench.sensitivity.run import PARTS, SetsMissing, Split, measure, render
    except ImportError as error:
        fail(f"this needs a checkout with the dev requirements, and its folder as the current one ({error})")
    parts = only.split(",") if only else PARTS
    if unknown := ", ".join(part for part in parts if part not in PARTS):
        fail(f"--only does not know {unknown}: choose of {', '.join(PARTS)}")
    try:
        found = measure(parts, quick, Split.DEV if dev else Split.TEST)
    except SetsMissing as error:
        fail(str(error))
    echo_json(found) if as_json else typer.echo(render(found), nl=False)
    if must and found.failed:
        raise typer.Exit(1)


@bench.command("routing")
def bench_routing(
    rows: Annotated[list[Path], typer.Option(help="Outcomes: files, or a folder with --set. Several times.")],
    prompts: Annotated[list[Path] | None, typer.Option(help="Likewise; a folder given as --rows will do.")] = None,
    name: Annotated[str, typer.Option("--set", help="Of a folder: NAME.rows.* and NAME.prompts.*.")] = "",
    protocol: Annotated[str, typer.Option(help="kfold, leave-one-benchmark-out or online.")] = "kfold",
    seed: Annotated[int, typer.Option(help="Of folds and resamples.", min=0)] = 0,
    labels: Annotated[int | None, typer.Option(help="Learn from so many prompts only.", min=1)] = None,
    resamples: Annotated[int, typer.Option(help="For the intervals; 0: none.", min=0, max=5_000)] = 500,
    targets: Annotated[str, typer.Option(help="Compare these only: a,b.")] = "",
    plot: Annotated[Path | None, typer.Option(help="Cost against accuracy, as a PNG.")] = None,
    must: Annotated[bool, typer.Option("--check", help="Exit status 1 if a goal is missed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """How well routing does on outcomes of models: against single ones, mixing, a table of labels and the oracle."""
    try:
        from bench.routing.run import BadData, Options, measure, render
    except ImportError as error:
        fail(f"this needs a checkout as the current folder, and `pip install 'lowpass[bench]'` ({error})")
    only = targets.split(",") if targets else ()
    try:
        found = measure(Options(rows, prompts or (), name, protocol, seed, labels, resamples, only, plot))
    except BadData as error:
        fail(str(error))
    echo_json(found) if as_json else typer.echo(render(found), nl=False)
    raise typer.Exit(must and not found.sound)


if __name__ == "__main__":
    main()
