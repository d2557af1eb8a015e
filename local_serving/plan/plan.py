"""Does an engine fit, and what will its tokens cost? Said before it is launched."""

from local_serving.plan.architecture import architecture
from local_serving.plan.fit import Plan
from local_serving.plan.on_cpu import of_llamacpp, of_vllm
from local_serving.plan.on_gpus import of_gpus
from local_serving.spec import EngineError, EngineSpec, External, Llamacpp

__all__ = ["Plan", "plan"]


def plan(spec: EngineSpec) -> Plan:
    """Raises `EngineError` where it is not known what the model is, or nothing is launched."""
    if isinstance(spec, External):
        raise EngineError(f"{spec.name} is run by somebody else: there is nothing to plan")
    if isinstance(spec, Llamacpp):
        return of_llamacpp(spec)
    model = architecture(spec)
    return of_gpus(spec, model) if spec.gpu else of_vllm(spec, model)
