"""Services of a compose file. No container engine runs here: what is printed is read back."""

from typing import Any

import msgspec
import pytest
import yaml

from local_serving.manifests import compose, dumped, external, written
from local_serving.manifests.compose import services_of
from local_serving.manifests.container import PORT, container
from local_serving.spec import EngineError, Vllm, read
from local_serving.spec.spec import Adapter
from tests.manifests import ONE_MACHINE, TALKATIVE
from tests.manifests.options import parsed

BY_NAME = {spec.name: spec for spec in ONE_MACHINE}


def services(*specs: Vllm) -> dict[str, dict[str, Any]]:
    """What a reader of the printed file sees, variables put in as compose does."""
    printed = dumped(compose(specs))
    found: dict[str, dict[str, Any]] = resolved(yaml.safe_load(printed)["services"])
    assert yaml.safe_load(printed) == compose(specs)
    return found


def resolved(value: Any) -> Any:
    """As compose reads it: no variable is left, and `$$` is a dollar."""
    if isinstance(value, str):
        assert "$" not in value.replace("$$", ""), f"{value} names a variable"
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: resolved(one) for key, one in value.items()}
    return [resolved(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("spec", ONE_MACHINE, ids=lambda spec: spec.name)
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


def test_weights_from_the_hub_come_with_the_token_of_whoever_starts_them() -> None:
    (service,) = services(BY_NAME["plain"]).values()
    assert service["environment"]["HF_TOKEN"] is None
    assert service["volumes"] == ["models:/models"]
    assert service["environment"]["HF_HOME"].startswith("/models/")


def test_no_gpu_is_given_away_twice() -> None:
    found = services(BY_NAME["twins"], TALKATIVE, BY_NAME["plain"], BY_NAME["slow"])
    devices = {name: service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
               for name, service in found.items() if "deploy" in service}  # fmt: skip
    assert devices["talkative-v1-5"] == ["2", "3"], "as its spec says"
    assert {name: len(ids) for name, ids in devices.items()} == {
        "twins-0": 4, "twins-1": 4, "talkative-v1-5": 2, "plain": 1
    }  # fmt: skip
    given = [one for ids in devices.values() for one in ids]
    assert sorted(map(int, given)) == list(range(11))


def test_two_engines_of_one_name_are_refused() -> None:
    with pytest.raises(EngineError, match="two engines have the same name"):
        compose([BY_NAME["plain"], BY_NAME["plain"]])


def test_two_folders_of_one_name_are_refused() -> None:
    adapters = [{"name": "a", "path": "/srv/a/lora"}, {"name": "b", "path": "/srv/b/lora"}]
    spec = msgspec.structs.replace(TALKATIVE, adapters=msgspec.convert(adapters, tuple[Adapter, ...]))
    with pytest.raises(EngineError, match="/srv/b/lora and /srv/a/lora would both be /models/adapters/lora"):
        compose([spec])


def test_without_a_gpu_an_image_must_be_named() -> None:
    with pytest.raises(EngineError, match="slow: no image is known for vLLM on a CPU: set `image`"):
        compose([msgspec.structs.replace(BY_NAME["slow"], image="")])


@pytest.mark.parametrize("spec", ONE_MACHINE, ids=lambda spec: spec.name)
def test_the_gateway_s_spec_of_it_can_be_read_back(spec: Vllm, tmp_path: Any) -> None:
    there = external(spec, services_of(spec))
    path = tmp_path / "engine.yaml"
    path.write_text(written(there))
    assert read(path) == there
    assert len(there.urls) == spec.replicas
    assert there.cost == spec.cost
    assert there.reasoning == spec.reasoning
