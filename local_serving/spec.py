"""What a local engine is: a frozen value, read from a YAML file."""

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta, Struct

_SHIPPED = Path(__file__).parent / "engines"

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]


class EngineError(Exception):
    """A local engine can't be described, started or reached; the message is one line with the reason and a remedy."""


class EngineSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine with one model. Lengths in tokens; `context` is shared by all `parallel` streams."""

    name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_-]*$")]
    engine: Literal["llamacpp"]
    model: str
    """Id of the model's card in the catalog."""
    package: str = ""
    """Python package whose folder holds `file`; empty: `file` is a path of its own, relative to the spec."""
    file: str
    context: Positive
    parallel: Positive = 1
    batch: Positive = 512
    """Tokens computed at once; also the longest text that can be embedded."""
    embeddings: bool = False
    cache_mib: Natural = 256
    """Memory for prompts that may come again."""
    temperature: float = 0.8
    top_p: float = 0.95
    """Sampling for requests that say nothing about it."""
    threads: Natural = 0
    """0: one less than the cores that this process may use."""
    gpu_hour_usd: Decimal = Decimal(0)
    """USD per hour of the GPUs that the engine occupies."""


def known() -> tuple[str, ...]:
    """Names of the engines that come with lowpass."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def read(name_or_path: str | Path) -> EngineSpec:
    """The spec of a shipped engine (by name) or of a YAML file (by path). Raises `EngineError`."""
    path = _locate(str(name_or_path))
    try:
        spec = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), EngineSpec)
    except OSError as error:
        raise EngineError(f"{path}: can't read the engine's spec: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise EngineError(f"{path}{_position(error)}: this is not YAML") from error
    except msgspec.ValidationError as error:
        raise EngineError(f"{path}: {error}") from error
    return spec if spec.package else msgspec.structs.replace(spec, file=str(path.parent.absolute() / spec.file))


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
