"""YAML → engine spec."""

from pathlib import Path

import msgspec

from local_serving.spec.checks import findings
from local_serving.spec.document import Document, did_you_mean, parse
from local_serving.spec.shape import Shape
from local_serving.spec.spec import EngineError, EngineSpec, Llamacpp, Vllm

_SHIPPED = Path(__file__).parents[1] / "engines"


def known() -> tuple[str, ...]:
    """Names of the engines that come with lowpass."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def read(name_or_path: str | Path) -> EngineSpec:
    """The spec of a shipped engine (by name) or of a YAML file (by path), whose paths lie beside it.

    Raises `SpecError` with every mistake, or `EngineError` where nothing bears the name.
    """
    path = _locate(str(name_or_path))
    document = parse(path)
    shape = Shape(document)
    spec = _converted(document, shape)
    if spec is not None:
        for place, what, remedy in findings(spec, shape.dropped):
            document.report(document.node(place), what, remedy)
    if spec is None or document.mistakes:
        raise document.failed()
    return _beside(path.parent.absolute(), spec)


def is_path(name: str) -> bool:
    """A spec of one's own, and not a shipped one."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def _converted(document: Document, shape: Shape) -> EngineSpec | None:
    """Of the sound parts; None where what is left makes no spec, which is told."""
    values = shape.values()
    try:
        return msgspec.convert(values, EngineSpec) if values else None
    except msgspec.ValidationError as error:
        if not document.mistakes:
            document.report(document.root, str(error).partition(" - at")[0], "correct it")
        return None


def _beside(folder: Path, spec: EngineSpec) -> EngineSpec:
    """Relative paths start at the spec's own folder."""
    if isinstance(spec, Llamacpp):
        own = spec.package or spec.parts
        return spec if own else msgspec.structs.replace(spec, file=str(folder / Path(spec.file).expanduser()))
    if not isinstance(spec, Vllm):
        return spec
    adapters = tuple(msgspec.structs.replace(one, path=_folder(folder, one.path)) for one in spec.adapters)
    template = spec.template and str(folder / Path(spec.template).expanduser())
    python = str(folder / Path(spec.python).expanduser()) if "/" in spec.python else spec.python
    path = _folder(folder, spec.path)
    return msgspec.structs.replace(spec, path=path, adapters=adapters, template=template, python=python)


def _folder(beside: Path, path: str) -> str:
    """An absolute folder, or a hub's id as it is: "owner/name" that is no folder here."""
    folder = beside / Path(path).expanduser()
    is_id = path.count("/") == 1 and not path.startswith((".", "/", "~")) and not path.endswith("/")
    return path if is_id and not folder.exists() else str(folder)


def _locate(name_or_path: str) -> Path:
    if is_path(name_or_path):
        return Path(name_or_path)
    if name_or_path not in known():
        remedy = did_you_mean(name_or_path, known())
        raise EngineError(f"there is no engine '{name_or_path}': {remedy} A spec of your own is given by its path")
    return _SHIPPED / f"{name_or_path}.yaml"
