"""YAML → engine spec."""

from pathlib import Path

import msgspec
import yaml

from local_serving.spec.spec import EngineError, EngineSpec, Llamacpp

_SHIPPED = Path(__file__).parents[1] / "engines"


def known() -> tuple[str, ...]:
    """Names of the engines that come with lowpass."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def read(name_or_path: str | Path) -> EngineSpec:
    """The spec of a shipped engine (by name) or of a YAML file (by path). Raises `EngineError`."""
    path = _locate(str(name_or_path))
    try:
        spec: EngineSpec = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), EngineSpec)
    except OSError as error:
        raise EngineError(f"{path}: can't read the engine's spec: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise EngineError(f"{path}{_position(error)}: this is not YAML") from error
    except msgspec.ValidationError as error:
        raise EngineError(f"{path}: {error}") from error
    if not isinstance(spec, Llamacpp) or spec.package or spec.parts:
        return spec
    return msgspec.structs.replace(spec, file=str(path.parent.absolute() / spec.file))


def _locate(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path)
    if name_or_path not in known():
        remedy = f"known engines are {', '.join(known())}; a spec of your own is given by its path"
        raise EngineError(f"there is no engine {name_or_path!r}: {remedy}")
    return _SHIPPED / f"{name_or_path}.yaml"


def _position(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""
