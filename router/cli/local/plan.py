"""`lowpass local list | plan`: which engines there are; whether they fit, and what their tokens may cost."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from router.cli.app import JsonOption, PolicyOption, local
from router.terminal import echo_json, fail, settings_of, show

if TYPE_CHECKING:
    from local_serving.plan.plan import Plan
    from local_serving.plan.speed import Guess
    from local_serving.spec import EngineSpec


@local.command("list")
def list_engines(as_json: JsonOption = False) -> None:
    """The engines that come with lowpass: kind, size, attention, GPUs, licence."""
    from local_serving.spec import known, read

    specs = [read(name) for name in known()]
    if as_json:
        return echo_json(specs)
    columns = ("engine", "kind", "parameters", "active", "attention", "GPUs of a replica", "licence", "model")
    show(_table(columns, map(_described, specs)))


@local.command("plan")
def plan_engines(
    engines: Annotated[list[str] | None, typer.Argument(help="Names or paths of specs; else the policy's.")] = None,
    policy: PolicyOption = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="Show the kinds of GPUs that specs can name.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say before launching whether engines fit, and guess what their tokens cost. Fails if one does not fit."""
    if gpus:
        return _show_gpus(as_json)
    from router.config import engines_needed

    names = engines or engines_needed(settings_of(policy).policy)
    if not names:
        fail("the policy names no engine: name one, as in `lowpass local plan qwen3-8b`; `lowpass local list` has them")
    found = {name: _planned(name) for name in names}
    plans = [one for one in found.values() if one is not None and not isinstance(one, str)]
    if as_json:
        echo_json([_told(name, one) for name, one in found.items()])
    elif plans:
        show(_table(_COLUMNS, map(_row, plans)))
    _tell(found, as_json)
    raise typer.Exit(any(isinstance(one, str) or (one is not None and not one.fits) for one in found.values()))


def _planned(name: str) -> "Plan | str | None":
    """None for an engine that somebody else runs; else its plan, or why there is none."""
    from local_serving.plan.plan import plan
    from local_serving.spec import EngineError, External, read

    try:
        spec = read(name)
        return None if isinstance(spec, External) else plan(spec)
    except EngineError as error:
        return str(error)


def _tell(found: "dict[str, Plan | str | None]", as_json: bool) -> None:
    """What is no figure."""
    for name, one in found.items():
        if isinstance(one, str):
            typer.echo(one, err=True)
        elif not as_json and one is None:
            typer.echo(f"{name}: run by somebody else, nothing to plan")
        elif not as_json and one is not None and one.remedy:
            typer.echo(f"{name}: {one.remedy}")


def _told(name: str, one: "Plan | str | None") -> dict[str, Any]:
    from msgspec import structs

    if one is None or isinstance(one, str):
        return {"engine": name, "fits": None, "error": one}
    more = {"needed": one.needed, "room": one.room, "memory_bytes": one.memory_bytes, "usd": one.usd}
    return structs.asdict(one) | more


_COLUMNS = (
    "engine",
    "on",
    "may take",
    "weights",
    "overhead",
    "cache",
    "left",
    "fits",
    "tokens",
    "in full",
    "USD/M in",
    "out",
)


def _row(one: "Plan") -> tuple[str, ...]:
    """Sizes are GiB of one GPU, or of one replica on a CPU."""
    kept = min(one.kv_cache, max(one.available - one.weights - one.overhead, 0)) + one.prompt_cache
    left = one.available - one.weights - one.overhead - kept
    fits = "yes" if one.ample else "tight" if one.fits else "no"
    usd = ("-", "-") if one.usd is None else (_span(one.usd.input), _span(one.usd.output))
    sizes = map(_gib, (one.available, one.weights, one.overhead, kept, left))
    on = one.device if one.replicas == 1 else f"{one.replicas} × ({one.device})"
    return (one.engine, on, *sizes, fits, f"{one.tokens:,}", f"{one.sequences} of {one.parallel}", *usd)


def _span(guess: "Guess") -> str:
    """At best to at worst."""
    return f"{guess.best:.2g} to {guess.worst:.2g}"


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"


def _described(spec: "EngineSpec") -> tuple[str, ...]:
    from local_serving.served import gpus

    model, count = spec.architecture, gpus(spec)
    kinds = " + ".join(f"{one.layers} {one.kind}" for one in model.attention) if model else "-"
    sizes = (f"{model.parameters_b:g} B", f"{model.active_b:g} B") if model else ("-", "-")
    gpu = f"{count} × {getattr(spec, 'gpu', '?')}" if count else "-"
    return (spec.name, type(spec).__name__.lower(), *sizes, kinds, gpu, spec.licence, spec.model)


def _show_gpus(as_json: bool) -> None:
    from local_serving.plan.gpus import GPUS

    if as_json:
        return echo_json(dict(GPUS))
    rows = ((name, *map(str, (one.gib, one.bandwidth, one.bf16, one.fp8, one.watts))) for name, one in GPUS.items())
    show(_table(("GPU", "GiB", "GB/s", "TFLOP/s in 16 bits", "in 8 bits", "watts"), rows))


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> object:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table
