"""No container engine runs here: the compose file is read and compared with the image, the policy and the engines."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.policies import inspect_policy
from tests.packaging.project import ROOT, compose, dockerfile, documented_settings

FILE = compose()
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
GATEWAY, VLLM = SERVICES["gateway"], SERVICES["vllm"]
STORES = ("LOWPASS_DATABASE_URL", "LOWPASS_REDIS_URL")


def flags() -> dict[str, str]:
    return dict((flag.removeprefix("--") + "=").split("=", 1) for flag in VLLM["command"][1:])


def value(flag: str) -> str:
    return flags()[flag].removesuffix("=")


def qwen() -> dict[str, Any]:
    """The target that the file offers for the policy, out of the comment above the service."""
    comment = re.search(r"(?m)((?:^  #   .*\n)+)  vllm:", (ROOT / "docker-compose.yml").read_text())
    assert comment
    target: dict[str, Any] = yaml.safe_load(re.sub(r"(?m)^  #   ", "", comment[1]))
    return target


def test_a_plain_start_brings_up_what_needs_no_gpu() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == {"gateway", "redis", "postgres"}
    assert VLLM["profiles"] == ["gpu"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_image_has_a_tag(name: str) -> None:
    assert re.fullmatch(r"[\w/-]+:v?\d[\w.-]*", SERVICES[name]["image"])


@pytest.mark.parametrize("name", ["redis", "postgres", "vllm"])
def test_every_service_says_when_it_is_healthy(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}


def test_named_volumes_are_declared_and_used() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())}
    assert {name for name in used if not name.startswith(".")} == set(FILE["volumes"])


def test_the_gateway_is_published_on_loopback_at_the_image_s_port() -> None:
    exposed = next(step.value for step in dockerfile() if step.keyword == "EXPOSE")
    assert GATEWAY["ports"] == [f"127.0.0.1:{exposed}:{exposed}"]


def test_the_gateway_s_settings_exist() -> None:
    ours = {name for name in GATEWAY["environment"] if name.startswith("LOWPASS_")}
    assert ours <= documented_settings()


def test_the_gateway_reads_the_operator_s_policy_and_keeps_its_state() -> None:
    mounts = dict(volume.split(":")[:2][::-1] for volume in GATEWAY["volumes"])
    policy = Path(GATEWAY["environment"]["LOWPASS_POLICY"])
    assert (ROOT / mounts[str(policy.parent)] / policy.name).is_file()
    home = next(step.value for step in dockerfile() if step.keyword == "VOLUME")
    assert mounts[home] == "state"


def test_the_gateway_waits_for_the_stores_that_its_addresses_name() -> None:
    environment = GATEWAY["environment"]
    hosts = {re.search(r"(?:@|//)(\w+):\d+/", environment[name])[1] for name in STORES}  # type: ignore[index]
    assert hosts == set(GATEWAY["depends_on"])
    assert all(wait == {"condition": "service_healthy"} for wait in GATEWAY["depends_on"].values())


def test_the_database_is_the_one_that_the_gateway_is_told_of() -> None:
    url, postgres = GATEWAY["environment"]["LOWPASS_DATABASE_URL"], SERVICES["postgres"]["environment"]
    user, password, database = (postgres[f"POSTGRES_{name}"] for name in ("USER", "PASSWORD", "DB"))
    assert url == f"postgresql://{user}:{password}@postgres:5432/{database}"


def test_the_store_of_the_budgets_forgets_nothing() -> None:
    """Neither in a power cut nor for want of memory."""
    _, *options = SERVICES["redis"]["command"]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given == {"--appendonly": "yes", "--appendfsync": "always", "--maxmemory-policy": "noeviction"}


def test_the_engine_uses_the_gpu_and_drains_before_it_is_killed() -> None:
    (device,) = VLLM["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert int(VLLM["stop_grace_period"].removesuffix("s")) > int(value("shutdown-timeout"))


def test_the_engine_counts_what_the_gateway_accounts_for() -> None:
    counting = {"enable-prompt-tokens-details", "enable-force-include-usage", "enable-per-request-metrics"}
    assert counting | {"enable-server-load-tracking", "enable-auto-tool-choice", "tool-call-parser"} <= flags().keys()
    reasoning = json.loads(value("reasoning-config"))
    assert reasoning["reasoning_parser"] == value("reasoning-parser") == "qwen3"
    assert reasoning["reasoning_end_str"] == "\n</think>"


def test_the_health_check_asks_the_port_that_the_engine_listens_on() -> None:
    assert f"http://127.0.0.1:{value('port')}/health" in VLLM["healthcheck"]["test"][-1]


def test_the_offered_target_reaches_the_engine_and_is_sound(tmp_path: Path) -> None:
    target = qwen()
    model = target["qwen"]["model"]
    assert target["qwen"]["base_url"] == f"http://vllm:{value('port')}/v1"
    assert (model["name"], model["context"]) == (value("served-model-name"), int(value("max-model-len")))
    policy = yaml.safe_load((ROOT / "policies" / "default.yaml").read_text())
    policy["targets"].update(target)
    policy["routes"]["auto"]["strategy"]["targets"].append("qwen")
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    assert inspect_policy(path) == ()
