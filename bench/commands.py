"""`lowpass bench`: the commands that measure on this machine."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from router.cli.app import JsonOption, echo_json, fail, failing

app = typer.Typer()
MustOption = Annotated[bool, typer.Option("--check", help="Exit status 1 if a goal is missed.")]


def _suite(name: str, needs: str = "with the dev requirements, and its folder as the current one") -> Any:
    """`bench.NAME.run`: what it measures, and how that is written. It takes packages that other suites do without."""
    try:
        return import_module(f"bench.{name}.run")
    except ImportError as error:
        fail(f"this needs a checkout {needs} ({error})")


def _chosen(only: str, suite: Any) -> list[str]:
    chosen = only.split(",") if only else suite.PARTS
    if unknown := ", ".join(part for part in chosen if part not in suite.PARTS):
        fail(f"--only does not know {unknown}: choose of {', '.join(suite.PARTS)}")
    return list(chosen)


def _measured(suite: Any, error: type[Exception], as_json: bool, *options: object) -> Any:
    """The report of `suite.measure`, once it is shown."""
    with failing(error):
        report = suite.measure(*options)
    echo_json(report) if as_json else typer.echo(suite.render(report), nl=False)
    return report


@app.command("budgets")
def bench_budgets(
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything: a minute instead of several.")] = False,
    only: Annotated[str, typer.Option(help="Some of overshoot,turns,crowds,kills,holds,cost.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Overshoot, refusals, crashes and cost of budgets, with real processes and stores."""
    suite = _suite("budgets")
    _measured(suite, suite.LoadError, as_json, _chosen(only, suite), quick)


@app.command("sensitivity")
def bench_sensitivity(
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything: seconds instead of minutes.")] = False,
    only: Annotated[str, typer.Option(help="Some of identifiers,secrets,evasions,names,speed,adverse,classes.")] = "",
    dev: Annotated[bool, typer.Option("--dev", help="The half that may be looked at, with kinds of misses.")] = False,
    must: MustOption = False,
    as_json: JsonOption = False,
) -> None:
    """What the detectors see, and what they wrongly see, in sets that they were not made on."""
    suite = _suite("sensitivity")
    split = suite.Split.DEV if dev else suite.Split.TEST
    report = _measured(suite, suite.SetsMissing, as_json, _chosen(only, suite), quick, split)
    raise typer.Exit(must and bool(report.failed))


@app.command("routing")
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
    must: MustOption = False,
    as_json: JsonOption = False,
) -> None:
    """How well routing does on outcomes of models: against single ones, mixing, a table of labels and the oracle."""
    suite = _suite("routing", "as the current folder, and `pip install 'lowpass-gateway[bench]'`")
    only = targets.split(",") if targets else ()
    options = suite.Options(rows, prompts or (), name, protocol, seed, labels, resamples, only, plot)
    report = _measured(suite, suite.BadData, as_json, options)
    raise typer.Exit(must and not report.sound)


@app.command("reports")
def bench_reports(
    requests: Annotated[int, typer.Option(help="In the ledger that is read.", min=1)] = 1_000_000,
    only: Annotated[str, typer.Option(help="Some of size,pages,ad-hoc,replay,writes.")] = "",
    folder: Annotated[Path | None, typer.Option(help="Where such a ledger is, or is to be made and kept.")] = None,
    must: MustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Large ledgers: bytes a request, seconds a page, ad-hoc questions, replay, rows written a second."""
    suite = _suite("reports")
    report = _measured(suite, suite.LoadError, as_json, _chosen(only, suite), requests, folder)
    raise typer.Exit(must and bool(report.missed))


@app.command("local")
def bench_local(
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything: a minute or two.")] = False,
    only: Annotated[str, typer.Option(help="Some of overhead,plan,spill,affinity,cost.")] = "",
    must: MustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Local engines, real ones: overhead, memory as planned, spilling under overload, prefix caches, cost."""
    suite = _suite("local")
    report = _measured(suite, suite.LoadError, as_json, _chosen(only, suite), quick)
    raise typer.Exit(must and bool(report.missed))
