"""`lowpass local compose|kubernetes|nodes`, as typed."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from local_serving.manifests import written
from local_serving.spec import read
from router.cli import app
from router.policies import inspect_policy
from tests.manifests import MACHINES, TALKATIVE

RUN = CliRunner()


@pytest.fixture
def talkative(tmp_path: Path) -> str:
    path = tmp_path / "talkative.yaml"
    path.write_text(written(TALKATIVE))
    return str(path)


def said(*words: str) -> str:
    done = RUN.invoke(app, ["local", *words])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refused(*words: str) -> str:
    done = RUN.invoke(app, ["local", *words])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_compose_prints_a_file_that_compose_can_merge(talkative: str) -> None:
    printed = yaml.safe_load(said("compose", talkative))
    assert list(printed["services"]) == ["talkative-v1-5"]
    assert printed["volumes"] == {"models": {}}


def test_kubernetes_prints_objects_and_what_to_copy_first(talkative: str) -> None:
    printed = said("kubernetes", talkative)
    assert next(one["kind"] for one in yaml.safe_load_all(printed)) == "PersistentVolumeClaim"
    assert "claim talkative-v1-5-models before the engine starts" in printed
    assert "#   /srv/lora/sql as adapters/sql\n" in printed


def test_nodes_prints_a_line_for_each_machine(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(written(MACHINES[0]))
    first, second = said("nodes", str(path), "--head", "10.0.0.7").strip().split("\n\n")
    assert first.startswith("# node 0: the API is http://10.0.0.7:8000/v1\nenv ")
    assert second.startswith("# node 1\nenv ")
    assert second.endswith(" --headless")


def test_documents_are_the_same_as_json(talkative: str, tmp_path: Path) -> None:
    assert json.loads(said("compose", talkative, "--json")) == yaml.safe_load(said("compose", talkative))
    found = json.loads(said("kubernetes", talkative, "--json"))
    assert found["kind"] == "List"
    assert found["items"] == list(yaml.safe_load_all(said("kubernetes", talkative)))
    external = said("compose", talkative, "--external")
    assert json.loads(said("compose", talkative, "--external", "--json")) == yaml.safe_load(external)
    assert external.startswith(f"# In the policy, as a target: {TALKATIVE.name}: {{model: {TALKATIVE.model}, engine:")
    path = tmp_path / "long.yaml"
    path.write_text(written(MACHINES[0]))
    first, second = json.loads(said("nodes", str(path), "--head", "h", "--json"))
    assert first["commands"][0][0] == second["commands"][0][0] == "env"


@pytest.mark.parametrize("platform", ["compose", "kubernetes"])
def test_a_policy_can_name_the_engine_by_the_spec_that_is_printed_for_it(
    platform: str, talkative: str, tmp_path: Path
) -> None:
    engine = tmp_path / "deployed.yaml"
    engine.write_text(said(platform, talkative, "--external"))
    assert read(engine).name == TALKATIVE.name
    model = {"name": "talk", "provider": "vllm", "context": 8192, "max_output": 4096, "capabilities": ["chat"]}
    target = {"model": model | {"price": {"input": 0, "output": 0}}, "engine": str(engine)}
    policy = tmp_path / "policy.yaml"
    route = {"strategy": {"kind": "ordered", "targets": ["talk"]}}
    policy.write_text(yaml.safe_dump({"version": 1, "targets": {"talk": target}, "routes": {"auto": route}}))
    assert inspect_policy(policy) == ()


def test_mistakes_are_told_in_one_line(talkative: str) -> None:
    assert "smollm2 runs inside the gateway's own container" in refused("compose", "smollm2")
    assert "no engine 'smolm2'" in refused("kubernetes", "smolm2")
    assert "name one at a time" in refused("compose", talkative, talkative, "--external")
    assert "is on one machine" in refused("nodes", talkative, "--head", "h")
