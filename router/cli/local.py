"""`lowpass local`: lists, plans, runs and exports local engines."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Annotated, Any

import typer
from msgspec import structs

from local_serving import EngineError, manifests, record, supervisor
from local_serving.manifests import MODELS, container, hosts, launched, services_of
from local_serving.plan import EnginePlan
from local_serving.plan import plan as planned
from local_serving.recipe import EngineHome
from local_serving.record import EngineRecord, statuses
from local_serving.spec import GPUS, EngineSpec, External, Vllm, known, read
from local_serving.spec import gpus as gpus_of
from router.cli.app import JsonOption, PolicyOption, echo_json, fail, failing, settings_of, show_rows
from router.settings import Settings

app = typer.Typer()

# `lowpass local list | plan`: which engines there are, whether they fit, and what their tokens may cost.


@app.command("list")
def list_engines(as_json: JsonOption = False) -> None:
    """List the engines that come with lowpass: kind, size, attention, GPUs, licence."""
    specs = [read(name) for name in known()]
    if as_json:
        return echo_json(specs)
    show_rows("engine:label kind parameters active attention GPUs_of_a_replica licence model", map(_described, specs))


@app.command("plan")
def plan_engines(
    engines: Annotated[list[str] | None, typer.Argument(help="Names or paths of specs; else the policy's.")] = None,
    policy: PolicyOption = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="Show the kinds of GPUs that specs can name.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say before launching whether engines fit, and estimate what their tokens cost. Fails if one does not fit."""
    if gpus:
        if as_json:
            return echo_json(dict(GPUS))
        kinds = (
            (name, *map(str, (gpu.gib, gpu.bandwidth, gpu.bf16, gpu.fp8, gpu.watts))) for name, gpu in GPUS.items()
        )
        return show_rows("GPU:label GiB:count GB/s:count TFLOP/s_in_16_bits:count in_8_bits:count watts:count", kinds)
    by_name = {name: _planned(name) for name in _wanted(engines, settings_of(policy))}
    plans = [plan for plan in by_name.values() if plan is not None and not isinstance(plan, str)]
    if as_json:
        echo_json([_fields(name, plan) for name, plan in by_name.items()])
    elif plans:
        show_rows(_COLUMNS, map(_row, plans))
    for name, plan in by_name.items():
        if isinstance(plan, str):
            typer.echo(plan, err=True)
        elif not as_json and plan is None:
            typer.echo(f"{name}: not run by lowpass, nothing to plan")
        elif not as_json and plan is not None and plan.remedy:
            typer.echo(f"{name}: {plan.remedy}")
    raise typer.Exit(any(isinstance(plan, str) or (plan is not None and not plan.fits) for plan in by_name.values()))


def _wanted(engines: Sequence[str] | None, settings: Settings) -> Sequence[str]:
    """Returns the engines that were named, else those of the policy; the command fails if there are none."""
    from router.config.check import engines_needed

    names = engines or engines_needed(settings.policy)
    if not names:
        fail(f"{settings.policy} needs no local engine: name one, as `lowpass local list` shows them")
    return names


def _planned(name: str) -> EnginePlan | str | None:
    """Returns the engine's plan, or why there is none; None if lowpass does not run it."""
    try:
        spec = read(name)
        return None if isinstance(spec, External) else planned(spec)
    except EngineError as error:
        return str(error)


def _fields(name: str, plan: EnginePlan | str | None) -> dict[str, Any]:
    if plan is None or isinstance(plan, str):
        return {"engine": name, "fits": None, "error": plan}
    more = {"needed": plan.needed, "room": plan.room, "memory_bytes": plan.memory_bytes, "usd": plan.usd}
    return structs.asdict(plan) | more


_COLUMNS = (
    "engine:label on:label may_take:count weights:count overhead:count cache:count left:count fits:count tokens:count"
    " in_full:count USD/M_in:count out:count"
)


def _row(plan: EnginePlan) -> tuple[str, ...]:
    """Returns a row. Sizes: GiB of one GPU, or of one replica on a CPU; prices: from the best to the worst case."""
    cache_bytes = min(plan.kv_cache, max(plan.available - plan.weights - plan.overhead, 0)) + plan.prompt_cache
    left = plan.available - plan.weights - plan.overhead - cache_bytes
    sizes = (f"{size / 2**30:.2f}" for size in (plan.available, plan.weights, plan.overhead, cache_bytes, left))
    fits = "yes" if plan.ample else "tight" if plan.fits else "no"
    guesses = () if plan.usd is None else (plan.usd.input, plan.usd.output)
    usd = [f"{guess.best:.2g} to {guess.worst:.2g}" for guess in guesses] or ["-", "-"]
    on = plan.device if plan.replicas == 1 else f"{plan.replicas} × ({plan.device})"
    return (plan.engine, on, *sizes, fits, f"{plan.tokens:,}", f"{plan.sequences} of {plan.parallel}", *usd)


def _described(spec: EngineSpec) -> tuple[str, ...]:
    model, count = spec.architecture, gpus_of(spec)
    kinds = " + ".join(f"{part.layers} {part.kind}" for part in model.attention) if model else "-"
    sizes = (f"{model.parameters_b:g} B", f"{model.active_b:g} B") if model else ("-", "-")
    gpu = f"{count} × {getattr(spec, 'gpu', '?')}" if count else "-"
    return (spec.name, type(spec).__name__.lower(), *sizes, kinds, gpu, spec.licence, spec.model)


# `lowpass local up|down|status|logs`: engines that run apart from any gateway.

Engines = Annotated[list[str] | None, typer.Argument(metavar="[ENGINE]...", help="Shipped engines, or paths of specs.")]
_POLL_S = 0.1
_REPORT_S = 10.0


@app.command()
def up(engines: Engines = None, policy: PolicyOption = None) -> None:
    """Start engines that keep running after this shell, and wait until they serve; by default those of the policy."""
    settings, begun_s = settings_of(policy), time.monotonic()
    with failing(EngineError):
        specs = list(map(read, _wanted(engines, settings)))
        starts = [(spec, _start(spec, settings)) for spec in specs]
        outcomes = [_outcome(*start, settings, begun_s) for start in starts]
    if failures := [why for why in outcomes if why]:
        fail("; ".join(failures))


@app.command()
def down(engines: Engines = None) -> None:
    """Stop engines that `up` started, after their requests in progress; without names, all of them."""
    folder = settings_of(None).engines
    for engine in _chosen(record.records(folder), engines):
        if not engine.owned:
            typer.echo(f"{engine.name} is not up")
        elif engine.owner == "serve":
            fail(f"{engine.name} belongs to the gateway with process id {engine.process.pid}: it ends with that")
        else:
            gently = supervisor.end_detached(engine, folder)
            typer.echo(f"{engine.name} has ended" if gently else f"{engine.name} did not end and was killed")


@app.command()
def status(engines: Engines = None, as_json: JsonOption = False) -> None:
    """Show every replica that runs, or ran, for this home folder."""
    rows = [row for engine in _chosen(record.records(settings_of(None).engines), engines) for row in statuses(engine)]
    if as_json:
        return echo_json(rows)
    cells: list[tuple[str, ...]] = []
    for row in rows:
        memory = None if row.memory is None else f"{row.memory / 2**30:.2f} GiB"
        url = f"{row.url}  ({row.last_error})" if row.last_error else row.url
        line = (row.engine, row.replica, row.status, row.pid, memory, row.restarts, row.running, row.waiting, url)
        cells.append(tuple("–" if cell is None else str(cell) for cell in line))
    show_rows("engine:label replica status pid memory restarts running waiting url", cells)


@app.command()
def logs(
    engine: Annotated[str, typer.Argument(metavar="ENGINE")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is added.")] = False,
) -> None:
    """Print the log of an engine: its own output, and what happened to it."""
    folder, name = settings_of(None).logs, _name(engine)
    tails = {path: path.name.removeprefix(name).removesuffix("log").strip(".") for path in folder.glob(f"{name}*.log")}
    paths = sorted(path for path, number in tails.items() if not number or number.isdigit())
    if not paths:
        fail(f"there is no log of {name} in {folder}")
    ends = [_print_log(path, 0) for path in paths]
    while follow:
        time.sleep(_POLL_S)
        ends = [_print_log(path, end) for path, end in zip(paths, ends, strict=True)]


def _start(spec: EngineSpec, settings: Settings) -> Popen[bytes] | EngineRecord | None:
    """Starts an engine. Returns its process, or the record of one that runs already; None if lowpass does not run it.
    Raises `EngineError` if its files can't be written."""
    running = record.read(settings.engines, spec.name)
    if running and running.owned:
        return running
    if isinstance(spec, External):
        return None
    return supervisor.start_detached(spec, settings.logs, EngineHome(settings.engines, settings.vllm_python))


def _outcome(spec: EngineSpec, started: Popen[bytes] | EngineRecord | None, settings: Settings, begun_s: float) -> str:
    """Waits until the engine serves and says so; if it fails, returns why."""
    if isinstance(started, EngineRecord):
        return _already(spec, started)
    if started is None:
        typer.echo(f"{spec.name} is not run by lowpass: it is started there")
        return ""
    name, reported_s = spec.name, begun_s
    while started.poll() is None:
        current = record.read(settings.engines, name)
        if current and current.process.pid == started.pid and any(state.status == "ready" for state in current.states):
            typer.echo(f"{name} serves at {', '.join(current.urls)} after {time.monotonic() - begun_s:.1f} s")
            return ""
        if time.monotonic() - reported_s > _REPORT_S:
            reported_s = time.monotonic()
            typer.echo(f"{name} is starting: {reported_s - begun_s:.0f} s (`lowpass local logs {name}`)", err=True)
        time.sleep(_POLL_S)
    current = record.read(settings.engines, name)  # another `up` may have started it first
    return _already(spec, current) if current and current.owned else supervisor.why_ended(settings.logs, name)


def _already(spec: EngineSpec, running: EngineRecord) -> str:
    """Says that the engine is up already; returns an error if it runs with another spec."""
    process = running.process.pid
    if running.digest != record.digest(spec):
        remedy = f"`lowpass local down {spec.name}`" if running.owner == "up" else "end that gateway"
        return f"{spec.name} runs with another spec (process {process}): {remedy}, and start it again"
    owner_text = "" if running.owner == "up" else f" (of the gateway with process id {process})"
    states = ", ".join(state.status for state in running.states)
    typer.echo(f"{spec.name} is up already at {', '.join(running.urls)}: {states}{owner_text}")
    return ""


def _chosen(records: Sequence[EngineRecord], engines: Sequence[str] | None) -> Sequence[EngineRecord]:
    names = [_name(engine) for engine in engines or ()]
    known = {record.name: record for record in records}
    for name in names:
        if name not in known:
            fail(f"{name} was never started here: known are {', '.join(known) or 'none'}")
    return [known[name] for name in names] or [record for record in records if record.owned]


def _name(engine: str) -> str:
    """Returns the name of an engine that is given by name, or by the path of its spec."""
    with failing(EngineError):
        return read(engine).name if engine.endswith((".yaml", ".yml")) else engine


def _print_log(path: Path, start: int) -> int:
    """Prints the log from byte `start`, or all of it if the log was rotated; returns its length."""
    with path.open("rb") as file:
        if file.seek(0, 2) < start:
            start = 0
        file.seek(start)
        added = file.read()
    typer.echo(added.decode(errors="replace"), nl=False)
    return start + len(added)


# `lowpass local compose|kubernetes|nodes`: engines for other platforms, from the same specs.

ManifestEngines = Annotated[list[str], typer.Argument(metavar="ENGINE...", help="Shipped engines, or paths of specs.")]
ExternalOption = Annotated[
    bool, typer.Option("--external", help="The spec by which a gateway there finds the engine, instead.")
]


@app.command("compose")
def compose(engines: ManifestEngines, external: ExternalOption = False, as_json: JsonOption = False) -> None:
    """Print services for a compose file, one for each replica."""
    with failing(EngineError):
        specs = list(map(read, engines))
        if external:
            return _echo_external(specs, services_of, as_json)
        services = manifests.compose(specs)
        echo_json(services) if as_json else typer.echo(manifests.dumped(services), nl=False)


@app.command("kubernetes")
def kubernetes(engines: ManifestEngines, external: ExternalOption = False, as_json: JsonOption = False) -> None:
    """Print Kubernetes objects: weights, pods, their services, and who may connect to them."""
    with failing(EngineError):
        specs = list(map(read, engines))
        if external:
            return _echo_external(specs, hosts, as_json)
        items = [item for spec in specs for item in manifests.kubernetes(spec)]
        if as_json:
            return echo_json({"apiVersion": "v1", "kind": "List", "items": items})
        typer.echo("".join(map(_to_copy, specs)) + manifests.dumped(*items), nl=False)


@app.command("nodes")
def nodes(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="A shipped engine, or the path of a spec.")],
    head: Annotated[str, typer.Option(help="Address of the first node, as the others reach it.")],
    as_json: JsonOption = False,
) -> None:
    """Print the commands to start on each machine for an engine that spans several."""
    with failing(EngineError):
        machines = manifests.nodes(read(engine), head)
        echo_json(machines) if as_json else typer.echo("\n\n".join("\n".join(node.lines) for node in machines))


def _echo_external(specs: list[EngineSpec], hosts: Callable[[Vllm], Iterable[str]], as_json: bool) -> None:
    """Prints the spec by which a gateway finds a running engine; the command fails for several, as a file holds one."""
    if len(specs) > 1:
        fail("--external writes the spec of one engine: name one at a time")
    spec = launched(specs[0])
    running = manifests.external(spec, tuple(hosts(spec)))
    if as_json:
        return echo_json(manifests.stated(running))
    target = f"{{model: {spec.model}, engine: PATH-OF-THIS-FILE}}"
    typer.echo(f"# In the policy, as a target: {spec.name}: {target}\n{manifests.written(running)}", nl=False)


def _to_copy(spec: EngineSpec) -> str:
    engine = container(spec)
    if not engine.mounts:
        return ""
    lines = [f"#   {source} as {place.removeprefix(f'{MODELS}/')}" for place, source in engine.mounts.items()]
    return "\n".join([f"# Copy these into the claim {engine.name}-models before the engine starts:", *lines]) + "\n"
