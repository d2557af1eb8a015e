"""Weights, caches and speed against what is published and what was measured."""

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from local_serving.launch.llamacpp import model_path
from local_serving.plan import architecture, config
from local_serving.plan.gguf import read_head
from local_serving.plan.gpus import GIB, GPUS
from local_serving.plan.kv_cache import Cache
from local_serving.plan.speed import CPU_CORE, speed
from local_serving.plan.weights import expert_parameters, on_gpu, weights
from local_serving.spec import EngineError, Llamacpp, read
from local_serving.spec.spec import Architecture, Attention, Parallelism
from tests.local_serving import models
from tests.tables import each_row

MODELS = {one.name: one for one in models.known()}
EMBEDDING = 1.1
"""Some makers count the embedding among the active parameters, some do not."""


def built(name: str) -> Architecture:
    return config.architecture(MODELS[name].config)


@each_row("one", MODELS.values(), ids=lambda one: one.name)
def test_parameters_and_cache_are_what_the_makers_publish(one: models.Known) -> None:
    counted = config.architecture(one.config)
    assert counted.parameters_b == pytest.approx(one.published["parameters_b"], rel=0.01)
    active = one.published["active_b"]
    assert active / EMBEDDING < counted.active_b < active * EMBEDDING or one.name == "granite-4.0-h-tiny"
    assert Cache(counted).token() == one.published["token"]


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
    """Model card, table 1."""
    spec: Any = read(name)
    assert sum(weights(spec.architecture, spec.weight_bits)) / GIB == pytest.approx(gib, rel=0.01)


def test_gpus_share_weights_and_only_experts_over_data_ranks() -> None:
    """Experts: 32 layers of 8, each of 3 × 4,096 × 14,336."""
    assert expert_parameters(built("mixtral-8x7b")) == pytest.approx(32 * 8 * 3 * 4096 * 14336 / 1e9)
    assert expert_parameters(built("qwen3-8b")) == 0
    of = weights(built("mixtral-8x7b"), 16)
    alone, half = on_gpu(of, Parallelism()), on_gpu(of, Parallelism(tensor=2))
    assert alone == pytest.approx(46.7e9 * 2, rel=0.001)
    assert half == pytest.approx(alone / 2, rel=0.02)
    ranks = on_gpu(of, Parallelism(data=2, expert=True))
    assert ranks == pytest.approx(of.shared + of.experts / 2, rel=0.02)
    assert on_gpu(of, Parallelism(pipeline=2)) == half


@each_row("streams, measured", [(1, 57), (8, 294)])
def test_the_likely_speed_on_a_cpu_is_about_what_was_measured(streams: int, measured: float) -> None:
    """SmolLM2 in bfloat16 by vLLM on one core, with short prompts."""
    model = built("smollm2")
    guess = speed(Cache(model, block=128), weights(model, 16), CPU_CORE, streams, 512)
    assert guess.output.worst < measured < guess.output.best
    assert guess.input.likely == pytest.approx(1000, rel=0.1)


def test_more_streams_give_more_and_experts_are_quicker_than_a_dense_model_of_their_size() -> None:
    gpu = GPUS["h100-80gb"]

    def output(model: Architecture, streams: int) -> float:
        return speed(Cache(model), weights(model, 16), gpu, streams, 4096).output.likely

    experts = built("qwen3-30b-a3b")
    dense = structs.replace(experts, active_b=experts.parameters_b, experts=0, experts_active=0)
    assert output(experts, 1) < output(experts, 8) < output(experts, 64)
    assert output(experts, 1) > 5 * output(dense, 1)
    assert output(experts, 64) == pytest.approx(output(dense, 64), rel=0.1)  # by then nearly every expert is read


def test_a_gguf_file_says_what_it_holds() -> None:
    embedded = read("smollm2")
    assert isinstance(embedded, Llamacpp)
    found = architecture.of_gguf("m", read_head(model_path(embedded)))
    assert found.parameters_b * 1e9 == 134_515_008
    same = {"parameters_b": found.parameters_b, "active_b": found.active_b}
    assert found == structs.replace(built("smollm2"), **same)


def _text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def _gguf(entries: dict[str, int | str], tensors: dict[str, tuple[int, ...]]) -> bytes:
    """A head without weights."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    for key, value in entries.items():
        plain = struct.pack("<II", 4, value) if isinstance(value, int) else struct.pack("<I", 8) + _text(value)
        head += _text(key) + plain
    for name, shape in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, 0)
    return head


def _read(path: Path, entries: dict[str, int | str], tensors: dict[str, tuple[int, ...]]) -> Architecture:
    path.write_bytes(_gguf(entries, tensors))
    return architecture.of_gguf("m", read_head(path))


def test_experts_of_a_gguf_file_are_told_apart(tmp_path: Path) -> None:
    entries: dict[str, int | str] = {"general.architecture": "x", "x.block_count": 2, "x.embedding_length": 8}
    entries |= {"x.attention.head_count": 2, "x.expert_count": 4, "x.expert_used_count": 1}
    tensors = {"token_embd.weight": (8, 100), "output.weight": (8, 100), "blk.0.ffn_up_exps.weight": (8, 50, 4)}
    found = _read(tmp_path / "m.gguf", entries, tensors)
    assert [found.parameters_b * 1e9, found.active_b * 1e9] == pytest.approx([3200, 2000])
    assert (found.experts, found.experts_active, found.tied) == (4, 1, False)
    assert found.attention == (Attention(kind="full", layers=2, kv_heads=2, head_dim=4),)


@each_row("family, layers", [("gemma3", [(3, 0), (15, 512)]), ("other", [(18, 0)])])
def test_layers_with_a_window_are_found(tmp_path: Path, family: str, layers: list[tuple[int, int]]) -> None:
    """Where it is known which: else what may slide is planned as if it did not."""
    sizes = {"block_count": 18, "attention.head_count": 4, "attention.key_length": 256, "attention.sliding_window": 512}
    entries: dict[str, int | str] = {"general.architecture": family}
    entries |= {f"{family}.{key}": size for key, size in sizes.items()}
    found = _read(tmp_path / "m.gguf", entries, {"token_embd.weight": (640, 100)})
    assert [(part.layers, part.window) for part in found.attention] == layers


@each_row(
    "content, message",
    [
        (_gguf({"general.architecture": "x"}, {}), "m: its file is of an unknown form .*: add `architecture` to its"),
        (b"PK\x03\x04zip", "is no GGUF file"),
        (b"GGUF" + struct.pack("<I", 1), "is no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1), "is damaged: fetch the file again"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60), "is damaged"),
        (_gguf({"a": 1}, {})[:-3], "is damaged"),
    ],
)
def test_why_a_file_tells_nothing_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(EngineError, match=message):
        architecture.of_gguf("m", read_head(tmp_path / "m.gguf"))


@given(cut=st.integers(4, 400), noise=st.binary(max_size=64))
def test_a_torn_file_is_refused_and_nothing_worse(
    tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes
) -> None:
    path = tmp_path_factory.mktemp("torn") / "m.gguf"
    path.write_bytes(
        _gguf({"general.architecture": "x", "x.block_count": 2}, {"token_embd.weight": (8, 100)})[:cut] + noise
    )
    with suppress(EngineError):
        read_head(path)
