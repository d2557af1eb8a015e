"""No container engine runs here: the compose file is read and compared with the image, the policy and the engines."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from local_serving.manifests import compose as compose_of
from local_serving.manifests import dumped
from local_serving.spec import External, read
from router.policies import inspect_policy
from router.testing import lowpass
from tests.packaging.project import ROOT, compose, dockerfile, documented_settings
from tests.tables import each_row

FILE = compose()
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
GATEWAY, ENGINE = SERVICES["gateway"], "qwen3-8b"
STORES = ("LOWPASS_DATABASE_URL", "LOWPASS_REDIS_URL")


def offered(pattern: str) -> str:
    """What the comment above the services says to do with a GPU."""
    found = re.search(pattern, (ROOT / "docker-compose.yml").read_text())
    assert found
    return found[1]


def test_a_plain_start_brings_up_what_needs_no_gpu() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == {"gateway", "redis", "postgres"}
    assert SERVICES[ENGINE]["profiles"] == ["gpu"]


@each_row("name", sorted(SERVICES))
def test_every_image_has_a_tag_and_says_when_it_is_healthy(name: str) -> None:
    """The gateway's image says so itself."""
    assert re.fullmatch(r"[\w/-]+:v?\d[\w.-]*", SERVICES[name]["image"])
    assert name == "gateway" or SERVICES[name]["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}


def test_named_volumes_are_declared_and_used() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())}
    assert {name for name in used if not name.startswith(".")} == set(FILE["volumes"])


def test_the_gateway_is_published_on_loopback_with_settings_that_exist() -> None:
    exposed = next(step.value for step in dockerfile() if step.keyword == "EXPOSE")
    assert GATEWAY["ports"] == [f"127.0.0.1:{exposed}:{exposed}"]
    assert {name for name in GATEWAY["environment"] if name.startswith("LOWPASS_")} <= documented_settings()


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


def test_the_engine_is_what_its_spec_becomes() -> None:
    printed = dumped(compose_of([read(ENGINE)])).removeprefix("services:\n").partition("volumes:\n  models")[0]
    assert printed in (ROOT / "docker-compose.yml").read_text(), f"copy it from `lowpass local compose {ENGINE}`"


def test_the_offered_target_reaches_the_engine_and_is_sound(tmp_path: Path) -> None:
    """The commands and the target of the comment, as they are written, in another folder."""
    command = offered(r"(lowpass local compose \S+ --external) > policies/(engines/\S+)").split()
    place = tmp_path / offered(r"--external > policies/(engines/\S+)")
    place.parent.mkdir()
    place.write_text(lowpass(tmp_path, *command[1:]).out)
    engine = read(place)
    assert isinstance(engine, External)
    assert [urlsplit(url).hostname for url in engine.urls] == [ENGINE]
    target = yaml.safe_load(offered(r"as a target: (.*)"))
    mounted = next(volume.split(":")[1] for volume in GATEWAY["volumes"] if volume.startswith("./policies"))
    assert target["qwen"]["engine"] == f"{mounted}/{place.relative_to(tmp_path)}"
    target["qwen"]["engine"] = str(place)
    policy = yaml.safe_load((ROOT / "policies" / "default.yaml").read_text())
    policy["targets"].update(target)
    policy["routes"]["auto"]["strategy"]["targets"].append("qwen")
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    assert inspect_policy(path) == ()
