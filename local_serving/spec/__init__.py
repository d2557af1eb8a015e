"""Engine specs: what they hold, and how they are read."""

from local_serving.spec.read import known, read
from local_serving.spec.spec import EngineError, EngineSpec, External, Llamacpp, Parts, Vllm

__all__ = ["EngineError", "EngineSpec", "External", "Llamacpp", "Parts", "Vllm", "known", "read"]
