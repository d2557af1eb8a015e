"""An engine in a container: what every platform says in its own words."""

import re
from collections.abc import Sequence
from math import ceil
from pathlib import Path, PurePosixPath

from msgspec import Struct, structs

from local_serving.launch.vllm import DRAIN_S, arguments, environment
from local_serving.served import gpus
from local_serving.spec import EngineError, EngineSpec, Llamacpp, Vllm

IMAGE = "vllm/vllm-openai:v0.32.0"
PORT = 8000
MODELS = PurePosixPath("/models")
"""Where the container keeps weights and compiled kernels, and finds folders that it is given."""
STOP_S = DRAIN_S + 20
"""Until it is killed: what still drains after that is cut."""
BYTES = 2
"""A parameter, at most, in the checkpoint that is fetched: what is quantised at load comes in 16 bits."""


class Container(Struct, frozen=True, kw_only=True):
    """`mounts`: what it reads, by its place in the container; each a folder or a file of the host."""

    name: str
    """A DNS label (RFC 1123), as all platforms want it."""
    image: str
    command: tuple[str, ...]
    environment: dict[str, str]
    mounts: dict[str, str]
    fetches: bool
    """Its weights come from the hub."""
    gpus: int
    start_s: int
    """Until it must serve."""
    disk_gib: int
    """For weights and compiled kernels."""


def container(spec: EngineSpec) -> Container:
    """Raises `EngineError` for engines that have no container of their own."""
    vllm = launched(spec)
    seen, mounts = inside(vllm)
    fetches = not Path(vllm.path).is_absolute()
    return Container(
        name=label(vllm.name),
        image=_image(vllm),
        command=serve(seen),
        environment=environment(seen, Path(MODELS)),
        mounts=mounts,
        fetches=fetches,
        gpus=gpus(vllm),
        start_s=vllm.start_s,
        disk_gib=_disk_gib(vllm),
    )


def launched(spec: EngineSpec) -> Vllm:
    """Raises `EngineError` for engines that are not vLLM's."""
    if isinstance(spec, Vllm):
        return spec
    if isinstance(spec, Llamacpp):
        raise EngineError(f"{spec.name} runs inside the gateway's own container: `lowpass serve` starts it")
    raise EngineError(f"{spec.name} is run by somebody else: name its spec in the policy, nothing is to be deployed")


def serve(spec: Vllm, *more: str) -> tuple[str, ...]:
    """vLLM's own program: the model first, as it wants it there."""
    _, path, *flags = arguments(spec, "0.0.0.0", PORT)  # noqa: S104 - of its container
    return ("vllm", "serve", path, *grouped(flags), *more)


def grouped(flags: Sequence[str]) -> list[str]:
    """`--flag value` as `--flag=value`, so that a line of a manifest is a setting; of several values each is alone."""
    found: list[list[str]] = []
    for word in flags:
        if word.startswith("--") or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return [word for words in found for word in (["=".join(words)] if len(words) == 2 else words)]


def label(name: str) -> str:
    """Raises `EngineError` if a name has no form as a DNS label of at most 50 characters: platforms add to it."""
    found = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    if not 0 < len(found) <= 50:
        raise EngineError(f"{name}: no name for a container can be made of it: use at most 50 letters and digits")
    return found


def _image(spec: Vllm) -> str:
    if not (spec.image or spec.gpu):
        raise EngineError(f"{spec.name}: no image is known for vLLM on a CPU: set `image` in its spec")
    return spec.image or IMAGE


def inside(spec: Vllm) -> tuple[Vllm, dict[str, str]]:
    """The spec as the container sees it, and what of the host is mounted for that, by its place there."""
    mounts: dict[str, str] = {}

    def seen(path: str, folder: PurePosixPath) -> str:
        if not Path(path).is_absolute():
            return path
        place = str(folder / Path(path).name)
        if mounts.setdefault(place, path) != path:
            raise EngineError(f"{spec.name}: {path} and {mounts[place]} would both be {place}: rename one of them")
        return place

    adapters = tuple(structs.replace(one, path=seen(one.path, MODELS / "adapters")) for one in spec.adapters)
    template = seen(spec.template, MODELS / "templates") if spec.template else ""
    path = seen(spec.path, MODELS)
    return structs.replace(spec, path=path, adapters=adapters, template=template), mounts


def _disk_gib(spec: Vllm) -> int:
    """Half as much again as the weights, and 10 GiB for what is compiled; 200 where nobody says how large they are."""
    if spec.architecture is None:
        return 200
    return ceil(spec.architecture.parameters_b * 1e9 * BYTES * 1.5 / 2**30) + 10
