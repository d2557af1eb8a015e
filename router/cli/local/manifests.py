"""`lowpass local compose|kubernetes|nodes`: engines for other platforms, from the same specs."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.app import JsonOption, local
from router.terminal import echo_json, fail

if TYPE_CHECKING:
    from local_serving.spec import EngineSpec, Vllm

Engines = Annotated[list[str], typer.Argument(metavar="ENGINE...", help="Shipped engines, or paths of specs.")]
External = Annotated[
    bool, typer.Option("--external", help="The spec by which a gateway there finds the engine, instead.")
]


@local.command("compose")
def compose(engines: Engines, external: External = False, as_json: JsonOption = False) -> None:
    """Services for a compose file, one for each replica."""
    from local_serving import manifests
    from local_serving.manifests.compose import services_of

    with _told():
        specs = _read(engines)
        if external:
            return _echo_external(specs, services_of, as_json)
        found = manifests.compose(specs)
        echo_json(found) if as_json else typer.echo(manifests.dumped(found), nl=False)


@local.command("kubernetes")
def kubernetes(engines: Engines, external: External = False, as_json: JsonOption = False) -> None:
    """Objects of Kubernetes: weights, pods, their names, and who may talk to them."""
    from local_serving import manifests
    from local_serving.manifests.kubernetes import hosts

    with _told():
        specs = _read(engines)
        if external:
            return _echo_external(specs, hosts, as_json)
        items = [one for spec in specs for one in manifests.kubernetes(spec)]
        if as_json:
            return echo_json({"apiVersion": "v1", "kind": "List", "items": items})
        typer.echo("".join(map(_to_copy, specs)) + manifests.dumped(*items), nl=False)


@local.command("nodes")
def nodes(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="A shipped engine, or the path of a spec.")],
    head: Annotated[str, typer.Option(help="Address of the first node, as the others reach it.")],
    as_json: JsonOption = False,
) -> None:
    """Commands for an engine over several machines: what to start on each."""
    from local_serving import manifests

    with _told():
        found = manifests.nodes(_read([engine])[0], head)
        echo_json(found) if as_json else typer.echo("\n\n".join("\n".join(node.lines) for node in found))


def _read(engines: Iterable[str]) -> "list[EngineSpec]":
    from local_serving.spec import read

    return [read(name) for name in engines]


def _echo_external(specs: "list[EngineSpec]", hosts: "Callable[[Vllm], Iterable[str]]", as_json: bool) -> None:
    """One spec of a running engine: a file has no room for more."""
    from local_serving import manifests
    from local_serving.manifests.container import launched

    if len(specs) > 1:
        fail("--external writes the spec of one engine: name one at a time")
    spec = launched(specs[0])
    found = manifests.external(spec, tuple(hosts(spec)))
    if as_json:
        return echo_json(manifests.said(found))
    target = f"{{model: {spec.model}, engine: PATH-OF-THIS-FILE}}"
    typer.echo(f"# In the policy, as a target: {spec.name}: {target}\n{manifests.written(found)}", nl=False)


def _to_copy(spec: "EngineSpec") -> str:
    from local_serving.manifests.container import MODELS, container

    engine = container(spec)
    if not engine.mounts:
        return ""
    lines = [f"#   {source} as {place.removeprefix(f'{MODELS}/')}" for place, source in engine.mounts.items()]
    return "\n".join([f"# Copy these into the claim {engine.name}-models before the engine starts:", *lines]) + "\n"


@contextmanager
def _told() -> Iterator[None]:
    from local_serving.spec import EngineError

    try:
        yield
    except EngineError as error:
        fail(str(error))
