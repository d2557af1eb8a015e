"""`lowpass local up|down|status|logs`: engines that run apart from any gateway."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.app import JsonOption, PolicyOption, local
from router.terminal import echo_json, fail, settings_of

if TYPE_CHECKING:
    from subprocess import Popen

    from local_serving.launch.record import Record
    from local_serving.launch.standing import Standing
    from local_serving.spec import EngineSpec
    from router.settings import Settings

Engines = Annotated[list[str] | None, typer.Argument(metavar="[ENGINE]...", help="Shipped engines, or paths of specs.")]
_WIDTHS = (20, 7, 10, 8, 9, 8, 7, 7)
_LOOK_EVERY_S = 0.1
_TOLD_EVERY_S = 10.0


@local.command()
def up(engines: Engines = None, policy: PolicyOption = None) -> None:
    """Start engines that outlive this shell, and wait until they serve; without names, those of the policy."""
    from local_serving.spec import EngineError

    settings = settings_of(policy)
    try:
        starts = [_Start(spec, settings) for spec in _specs(engines, settings)]
        told = [start.outcome() for start in starts]
    except EngineError as error:
        fail(str(error))
    if failures := [why for why in told if why]:
        fail("; ".join(failures))


@local.command()
def down(engines: Engines = None) -> None:
    """End engines that `up` started, after the requests that they have; without names, all of them."""
    from local_serving.launch import detached, record

    folder = settings_of(None).engines
    for one in _chosen(record.records(folder), engines):
        if not one.owned:
            typer.echo(f"{one.name} is not up")
        elif one.owner == "serve":
            fail(f"{one.name} belongs to the gateway with process id {one.process.pid}: it ends with that")
        else:
            gently = detached.end(one, folder)
            typer.echo(f"{one.name} has ended" if gently else f"{one.name} did not end and was killed")


@local.command()
def status(engines: Engines = None, as_json: JsonOption = False) -> None:
    """Every replica that runs for this home folder, or did."""
    from local_serving.launch import record
    from local_serving.launch.standing import standing

    rows = [row for one in _chosen(record.records(settings_of(None).engines), engines) for row in standing(one)]
    if as_json:
        return echo_json(rows)
    for line in _table(rows):
        typer.echo(line)


@local.command()
def logs(
    engine: Annotated[str, typer.Argument(metavar="ENGINE")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is added.")] = False,
) -> None:
    """What an engine said, and what became of it."""
    folder, name = settings_of(None).logs, _name(engine)
    paths = [path for path in sorted(folder.glob(f"{name}*.log")) if _is_log(path, name)]
    if not paths:
        fail(f"there is no log of {name} in {folder}")
    ends = [_say(path, 0) for path in paths]
    while follow:
        time.sleep(_LOOK_EVERY_S)
        ends = [_say(path, end) for path, end in zip(paths, ends, strict=True)]


class _Start:
    """One engine that is to be up; others start beside it. Raises `EngineError` if nothing can be written."""

    def __init__(self, spec: "EngineSpec", settings: "Settings") -> None:
        from local_serving.launch import detached, record
        from local_serving.launch.recipe import Place
        from local_serving.spec import External

        self._spec, self._settings, self._begun = spec, settings, time.monotonic()
        self._process, self._running = None, record.read(settings.engines, spec.name)
        if not isinstance(spec, External) and not (self._running and self._running.owned):
            place = Place(settings.engines, settings.vllm_python)
            self._process = detached.start(spec, settings.logs, place)

    def outcome(self) -> str:
        """Says when it serves; else, why it does not."""
        if self._process is not None:
            return self._waited(self._process)
        if self._running is not None and self._running.owned:
            return self._already(self._running)
        typer.echo(f"{self._spec.name} is run by somebody else: it is started there")
        return ""

    def _waited(self, process: "Popen[bytes]") -> str:
        from local_serving.launch import detached, record

        name, told = self._spec.name, self._begun
        while process.poll() is None:
            now = record.read(self._settings.engines, name)
            if now and now.process.pid == process.pid and any(state.status == "ready" for state in now.states):
                typer.echo(f"{name} serves at {', '.join(now.urls)} after {time.monotonic() - self._begun:.1f} s")
                return ""
            if time.monotonic() - told > _TOLD_EVERY_S:
                told = time.monotonic()
                typer.echo(f"{name} is starting: {told - self._begun:.0f} s (`lowpass local logs {name}`)", err=True)
            time.sleep(_LOOK_EVERY_S)
        now = record.read(self._settings.engines, name)  # another `up` may have been quicker
        return self._already(now) if now and now.owned else detached.why(self._settings.logs, name)

    def _already(self, running: "Record") -> str:
        from local_serving.launch import record

        name, process = self._spec.name, running.process.pid
        if running.digest != record.digest(self._spec):
            remedy = f"`lowpass local down {name}`" if running.owner == "up" else "end that gateway"
            return f"{name} runs with another spec (process {process}): {remedy}, and start it again"
        whose = "" if running.owner == "up" else f" (of the gateway with process id {process})"
        statuses = ", ".join(state.status for state in running.states)
        typer.echo(f"{name} is up already at {', '.join(running.urls)}: {statuses}{whose}")
        return ""


def _specs(engines: Sequence[str] | None, settings: "Settings") -> "list[EngineSpec]":
    from local_serving.spec import read
    from router.config import engines_needed

    names = engines or engines_needed(settings.policy)
    if not names:
        fail(f"{settings.policy} needs no local engine: name one, as `lowpass local list` shows them")
    return [read(name) for name in names]


def _chosen(records: "Sequence[Record]", engines: Sequence[str] | None) -> "Sequence[Record]":
    names = [_name(engine) for engine in engines or ()]
    known = {one.name: one for one in records}
    for name in names:
        if name not in known:
            fail(f"{name} was never started here: known are {', '.join(known) or 'none'}")
    return [known[name] for name in names] or [one for one in records if one.owned]


def _name(engine: str) -> str:
    """An engine is named as its spec names it, whether that or the spec's path is given."""
    from local_serving.spec import EngineError, read

    if not engine.endswith((".yaml", ".yml")):
        return engine
    try:
        return read(engine).name
    except EngineError as error:
        fail(str(error))


def _is_log(path: Path, name: str) -> bool:
    middle = path.name.removeprefix(name).removesuffix("log").strip(".")
    return not middle or middle.isdigit()


def _say(path: Path, start: int) -> int:
    """Prints from `start`, or anew where the file was begun anew; its length."""
    with path.open("rb") as file:
        if file.seek(0, 2) < start:
            start = 0
        file.seek(start)
        added = file.read()
    typer.echo(added.decode(errors="replace"), nl=False)
    return start + len(added)


def _table(rows: "Sequence[Standing]") -> Iterator[str]:
    yield _line("engine", "replica", "status", "pid", "memory", "restarts", "running", "waiting", "url")
    for row in rows:
        memory = None if row.memory is None else f"{row.memory / 2**30:.2f} GiB"
        url = f"{row.url}  ({row.last_error})" if row.last_error else row.url
        yield _line(
            *(row.engine, row.replica, row.status, row.pid, memory, row.restarts, row.running, row.waiting, url)
        )


def _line(*cells: object) -> str:
    texts = ["–" if cell is None else str(cell) for cell in cells]
    return "  ".join(text.ljust(width) for text, width in zip(texts, (*_WIDTHS, 0), strict=True)).rstrip()
