"""Services of a compose file. No container engine runs here: what is printed is read back."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import structs

from local_serving.manifests import compose, dumped, external, written
from local_serving.manifests.compose import services_of
from local_serving.manifests.container import PORT, container
from local_serving.spec import EngineError, Vllm, read
from local_serving.spec.spec import Adapter
from tests.manifests import ONE_MACHINE, TALKATIVE
from tests.manifests.options import parsed
from tests.tables import each_row

BY_NAME = {spec.name: spec for spec in ONE_MACHINE}


def services(*specs: Vllm) -> dict[str, dict[str, Any]]:
    """What a reader of the printed file sees, variables put in as compose does."""
    printed = yaml.safe_load(dumped(compose(specs)))
    assert printed == compose(specs)
    return {name: resolved(service) for name, service in printed["services"].items()}


def resolved(value: Any) -> Any:
    """As compose reads it: no variable is left, and `$$` is a dollar."""
    if isinstance(value, str):
        assert "$" not in value.replace("$$", ""), f"{value} names a variable"
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: resolved(part) for key, part in value.items()}
    return [resolved(part) for part in value] if isinstance(value, list) else value


@each_row("spec", ONE_MACHINE, ids=lambda spec: spec.name)
def test_a_service_runs_the_engine_and_says_when_it_is_healthy(spec: Vllm) -> None:
    found = services(spec)
    assert list(found) == list(services_of(spec))
    for service in found.values():
        command = [*service["entrypoint"], *service["command"]]
        assert command == list(container(spec).command)
        options = parsed(command)
        assert service["profiles"] == ["gpu" if spec.gpu else "cpu"]
        assert ("deploy" in service) == bool(spec.gpu)
        assert int(service["stop_grace_period"].removesuffix("s")) > int(options["--shutdown-timeout"][0])
        assert f"http://127.0.0.1:{PORT}/health" in service["healthcheck"]["test"][-1]
        assert options["--port"] == [str(PORT)]
        assert int(service["healthcheck"]["start_period"].removesuffix("s")) >= spec.start_s


def test_what_the_engine_reads_of_the_host_is_mounted_where_its_command_looks() -> None:
    (service,) = services(TALKATIVE).values()
    named, *binds = service["volumes"]
    assert named == "models:/models"
    assert {bind["type"] for bind in binds} == {"bind"}
    assert all(bind["read_only"] for bind in binds)
    assert {bind["target"]: bind["source"] for bind in binds} == {
        "/models/talk $HOME": "/srv/models/talk $HOME",
        "/models/templates/chat.jinja": "/srv/templates/chat.jinja",
        "/models/adapters/sql": "/srv/lora/sql",
    }
    assert service["environment"]["NOTE"] == "costs $5, $(date)"
    assert "HF_TOKEN" not in service["environment"], "nothing is fetched"


def test_weights_from_the_hub_come_with_the_token_of_those_who_start_them() -> None:
    (service,) = services(BY_NAME["plain"]).values()
    assert service["environment"]["HF_TOKEN"] is None
    assert service["volumes"] == ["models:/models"]
    assert service["environment"]["HF_HOME"].startswith("/models/")


def test_no_gpu_is_given_away_twice() -> None:
    printed = services(BY_NAME["twins"], TALKATIVE, BY_NAME["plain"], BY_NAME["slow"])
    deployed = {name: service["deploy"]["resources"] for name, service in printed.items() if "deploy" in service}
    gpus = {name: part["reservations"]["devices"][0]["device_ids"] for name, part in deployed.items()}
    assert gpus["talkative-v1-5"] == ["2", "3"], "as its spec says"
    counts = {name: len(ids) for name, ids in gpus.items()}
    assert counts == {"twins-0": 4, "twins-1": 4, "talkative-v1-5": 2, "plain": 1}
    assert sorted(int(gpu) for ids in gpus.values() for gpu in ids) == list(range(11))


LORAS = msgspec.convert([{"name": name, "path": f"/srv/{name}/lora"} for name in "ab"], tuple[Adapter, ...])


@each_row(
    "specs, message",
    [
        ([BY_NAME["plain"]] * 2, "two engines have the same name"),
        (
            [structs.replace(TALKATIVE, adapters=LORAS)],
            "/srv/b/lora and /srv/a/lora would both be /models/adapters/lora",
        ),
        ([structs.replace(BY_NAME["slow"], image="")], "slow: no image is known for vLLM on a CPU: set `image`"),
    ],
)
def test_what_can_t_be_one_file_is_refused(specs: list[Vllm], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        compose(specs)


@each_row("spec", ONE_MACHINE, ids=lambda spec: spec.name)
def test_the_gateway_s_spec_of_it_can_be_read_back(spec: Vllm, tmp_path: Path) -> None:
    there = external(spec, services_of(spec))
    (tmp_path / "engine.yaml").write_text(written(there))
    assert read(tmp_path / "engine.yaml") == there
    assert (len(there.urls), there.cost, there.reasoning) == (spec.replicas, spec.cost, spec.reasoning)
