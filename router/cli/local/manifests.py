"""`lowpass local compose|kubernetes|nodes`: engines for other platforms, from the same specs."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from router.cli.app import local
from router.terminal import fail

if TYPE_CHECKING:
    from local_serving.spec import EngineSpec, Vllm

Engines = Annotated[list[str], typer.Argument(metavar="ENGINE...", help="Shipped engines, or paths of specs.")]
External = Annotated[
    bool, typer.Option("--external", help="The spec by which a gateway there finds the engine, instead.")
]
_CLAIM = "copy these into the claim {name}-models before the engine starts:"


@local.command("compose")
def compose(engines: Engines, external: External = False) -> None:
    """Services for a compose file, one for each replica."""
    from local_serving import manifests
    from local_serving.manifests.compose import services_of

    def show() -> str:
        specs = _read(engines)
        return _told(specs, services_of) if external else manifests.dumped(manifests.compose(specs))

    typer.echo(_or_fail(show), nl=False)


@local.command("kubernetes")
def kubernetes(engines: Engines, external: External = False) -> None:
    """Objects of Kubernetes: weights, pods, their names, and who may talk to them."""
    from local_serving import manifests
    from local_serving.manifests.kubernetes import hosts

    def show() -> str:
        specs = _read(engines)
        if external:
            return _told(specs, hosts)
        objects = [one for spec in specs for one in manifests.kubernetes(spec)]
        return "".join(map(_to_copy, specs)) + manifests.dumped(*objects)

    typer.echo(_or_fail(show), nl=False)


@local.command("nodes")
def nodes(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="A shipped engine, or the path of a spec.")],
    head: Annotated[str, typer.Option(help="Address of the first node, as the others reach it.")],
) -> None:
    """Commands for an engine over several machines: what to start on each."""
    from local_serving import manifests

    found = _or_fail(lambda: manifests.nodes(_read([engine])[0], head))
    typer.echo("\n\n".join("\n".join(node.lines) for node in found))


def _read(engines: Iterable[str]) -> "list[EngineSpec]":
    from local_serving.spec import read

    return [read(name) for name in engines]


def _told(specs: "list[EngineSpec]", hosts: "Callable[[Vllm], Iterable[str]]") -> str:
    """One spec of a running engine: a file has no room for more."""
    from local_serving import manifests
    from local_serving.manifests.container import launched

    if len(specs) > 1:
        fail("--external writes the spec of one engine: name one at a time")
    vllm = launched(specs[0])
    return manifests.written(manifests.external(vllm, tuple(hosts(vllm))))


def _to_copy(spec: "EngineSpec") -> str:
    from local_serving.manifests.container import MODELS, container

    engine = container(spec)
    if not engine.mounts:
        return ""
    lines = [f"#   {source} as {place.removeprefix(f'{MODELS}/')}" for place, source in engine.mounts.items()]
    return "\n".join([f"# {_CLAIM.format(name=engine.name).capitalize()}", *lines]) + "\n"


def _or_fail(show: Callable[[], Any]) -> Any:
    from local_serving.spec import EngineError

    try:
        return show()
    except EngineError as error:
        fail(str(error))
