"""Engine specs: what they hold, and how they are read."""

from local_serving.spec.document import Mistake, SpecError
from local_serving.spec.read import is_path, known, read
from local_serving.spec.spec import EngineError, EngineSpec, External, Llamacpp, Parts, Vllm

__all__ = [
    "EngineError",
    "EngineSpec",
    "External",
    "Llamacpp",
    "Mistake",
    "Parts",
    "SpecError",
    "Vllm",
    "is_path",
    "known",
    "read",
]
