"""`lowpass bench`: what is measured lives in the checkout's `bench/`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from router.cli.app import JsonOption, bench
from router.terminal import echo_json, fail


def _chosen(only: str, parts: Sequence[str]) -> Sequence[str]:
    chosen = only.split(",") if only else parts
    if unknown := ", ".join(part for part in chosen if part not in parts):
        fail(f"--only does not know {unknown}: choose of {', '.join(parts)}")
    return chosen


@contextmanager
def _checkout(needs: str = "with the dev requirements, and its folder as the current one") -> Iterator[None]:
    """For what is imported from it."""
    try:
        yield
    except ImportError as error:
        fail(f"this needs a checkout {needs} ({error})")


@bench.command("budgets")
def bench_budgets(
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything: a minute instead of several.")] = False,
    only: Annotated[str, typer.Option(help="Some of overshoot,crowds,kills,holds,cost.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Overshoot, refusals, crashes and cost of budgets, with real processes and stores."""
    with _checkout():
        from bench.budgets.run import PARTS, LoadError, measure, render
    parts = _chosen(only, PARTS)
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
    with _checkout():
        from bench.sensitivity.run import PARTS, SetsMissing, Split, measure, render
    parts = _chosen(only, PARTS)
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
    with _checkout("as the current folder, and `pip install 'lowpass[bench]'`"):
        from bench.routing.run import BadData, Options, measure, render
    only = targets.split(",") if targets else ()
    try:
        found = measure(Options(rows, prompts or (), name, protocol, seed, labels, resamples, only, plot))
    except BadData as error:
        fail(str(error))
    echo_json(found) if as_json else typer.echo(render(found), nl=False)
    raise typer.Exit(must and not found.sound)


@bench.command("reports")
def bench_reports(
    requests: Annotated[int, typer.Option(help="In the ledger that is read.", min=1)] = 1_000_000,
    only: Annotated[str, typer.Option(help="Some of size,pages,ad-hoc,replay,writes.")] = "",
    folder: Annotated[Path | None, typer.Option(help="Where such a ledger is, or is to be made and kept.")] = None,
    must: Annotated[bool, typer.Option("--check", help="Exit status 1 if a goal is missed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Large ledgers: bytes a request, seconds a page, ad-hoc questions, replay, rows written a second."""
    with _checkout():
        from bench.reports.run import PARTS, LoadError, measure, render
    parts = _chosen(only, PARTS)
    try:
        found = measure(parts, requests, folder)
    except LoadError as error:
        fail(str(error))
    echo_json(found) if as_json else typer.echo(render(found), nl=False)
    raise typer.Exit(must and bool(found.missed))


@bench.command("local")
def bench_local(
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything: a minute or two.")] = False,
    only: Annotated[str, typer.Option(help="Some of overhead,plan,spill,affinity,cost.")] = "",
    must: Annotated[bool, typer.Option("--check", help="Exit status 1 if a goal is missed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Local engines, real ones: overhead, memory as planned, spilling under overload, prefix caches, cost."""
    with _checkout():
        from bench.local.run import PARTS, LoadError, measure, render
    parts = _chosen(only, PARTS)
    try:
        found = measure(parts, quick)
    except LoadError as error:
        fail(str(error))
    echo_json(found) if as_json else typer.echo(render(found), nl=False)
    raise typer.Exit(must and bool(found.missed))
