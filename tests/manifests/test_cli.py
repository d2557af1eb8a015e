"""`lowpass local compose|kubernetes|nodes`, as typed."""

import json
from pathlib import Path

import pytest
import yaml

from local_serving.manifests import written
from local_serving.spec import read
from router.policies import inspect_policy
from router.testing.cli import lowpass
from tests.manifests import MACHINES, TALKATIVE
from tests.tables import each_row


@pytest.fixture
def talkative(tmp_path: Path) -> str:
    path = tmp_path / "talkative.yaml"
    path.write_text(written(TALKATIVE))
    return str(path)


@pytest.fixture
def long(tmp_path: Path) -> str:
    path = tmp_path / "long.yaml"
    path.write_text(written(MACHINES[0]))
    return str(path)


def printed(*words: str) -> str:
    done = lowpass(Path(), "local", *words)
    assert done.status == 0, done.error
    return done.out


def refused(*words: str) -> str:
    done = lowpass(Path(), "local", *words)
    assert (done.status, done.out, done.error.count("\n")) == (1, "", 1)
    return done.error


def test_compose_prints_a_file_that_compose_can_merge(talkative: str) -> None:
    file = yaml.safe_load(printed("compose", talkative))
    assert list(file["services"]) == ["talkative-v1-5"]
    assert file["volumes"] == {"models": {}}
    assert json.loads(printed("compose", talkative, "--json")) == file


def test_kubernetes_prints_objects_and_what_to_copy_first(talkative: str) -> None:
    text = printed("kubernetes", talkative)
    objects = list(yaml.safe_load_all(text))
    assert objects[0]["kind"] == "PersistentVolumeClaim"
    assert "claim talkative-v1-5-models before the engine starts" in text
    assert "#   /srv/lora/sql as adapters/sql\n" in text
    document = json.loads(printed("kubernetes", talkative, "--json"))
    assert (document["kind"], document["items"]) == ("List", objects)


def test_nodes_prints_a_line_for_each_machine(long: str) -> None:
    first, second = printed("nodes", long, "--head", "10.0.0.7").strip().split("\n\n")
    assert first.startswith("# node 0: the API is http://10.0.0.7:8000/v1\nenv ")
    assert second.startswith("# node 1\nenv ")
    assert second.endswith(" --headless")
    nodes = json.loads(printed("nodes", long, "--head", "h", "--json"))
    assert [node["commands"][0][0] for node in nodes] == ["env", "env"]


@each_row("platform", ["compose", "kubernetes"])
def test_a_policy_can_name_the_engine_by_the_spec_that_is_printed_for_it(
    platform: str, talkative: str, tmp_path: Path
) -> None:
    engine = tmp_path / "deployed.yaml"
    engine.write_text(text := printed(platform, talkative, "--external"))
    assert text.startswith(f"# In the policy, as a target: {TALKATIVE.name}: {{model: {TALKATIVE.model}, engine:")
    assert json.loads(printed(platform, talkative, "--external", "--json")) == yaml.safe_load(text)
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
