"""No container engine runs here: image and compose file are read and compared with the project and each other."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from local_serving.manifests import compose as compose_of
from local_serving.manifests import dumped
from local_serving.spec import External, read
from router.api.edge import ALIVE
from router.config.load import inspect_policy
from router.testing import lowpass
from tests.packaging.project import COMPOSE, ROOT, SETTINGS, dockerfile, instructions
from tests.tables import each_row

SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
GATEWAY, ENGINE = SERVICES["gateway"], "qwen3-8b"
OURS = dict(re.findall(r"(LOWPASS_\w+)=(\S+)", " ".join(instructions("ENV"))))
TEXT = (ROOT / "docker-compose.yml").read_text()


def offered(pattern: str) -> str:
    """What the comment above the services says to do with a GPU."""
    (found,) = re.findall(pattern, TEXT)
    return str(found)


# The image


def test_both_stages_start_from_the_same_tagged_python_and_every_line_is_an_instruction() -> None:
    (image,) = {value.split()[0] for value in instructions("FROM")}
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", image)
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {keyword for keyword, _ in dockerfile()} <= known


def test_everything_that_is_copied_exists_and_is_let_in() -> None:
    sources = [source for value in instructions("COPY") if "--from" not in value for source in value.split()[:-1]]
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / source).exists() for source in sources)
    assert {source.split("/")[0] for source in sources} == admitted


def test_packages_come_from_the_hashed_files_only() -> None:
    commands = [command.strip() for value in instructions("RUN") for command in value.split("&&")]
    hashed, ourselves = (command for command in commands if "pip install" in command)
    assert "--no-deps --require-hashes" in hashed
    assert "--no-deps --no-build-isolation" in ourselves
    assert ourselves.endswith(" .")


def test_the_command_is_the_project_s_and_runs_as_a_user_who_owns_the_state() -> None:
    home = OURS["LOWPASS_HOME"]
    assert instructions("USER") == ["lowpass"]
    assert instructions("VOLUME") == [home]
    assert f"--owner lowpass --mode 700 {home}" in " ".join(instructions("RUN"))
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["lowpass"]
    assert json.loads(instructions("CMD")[0]) == ["serve"]


def test_port_and_health_check_are_the_gateway_s_own_and_it_is_published_on_loopback() -> None:
    port = OURS["LOWPASS_PORT"]
    assert instructions("EXPOSE") == [port]
    assert GATEWAY["ports"] == [f"127.0.0.1:{port}:{port}"]
    probe = json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2])[-1]
    assert f"http://127.0.0.1:{port}/health/live" in probe
    assert ALIVE in probe
    compile(probe, "HEALTHCHECK", "exec")


def test_only_settings_that_exist_are_set() -> None:
    assert OURS.keys() | {name for name in GATEWAY["environment"] if name.startswith("LOWPASS_")} <= SETTINGS


# The compose file


def test_a_plain_start_brings_up_what_needs_no_gpu() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == {"gateway", "redis", "postgres"}
    assert SERVICES[ENGINE]["profiles"] == ["gpu"]


@each_row("name", sorted(SERVICES))
def test_every_image_has_a_tag_and_says_when_it_is_healthy(name: str) -> None:
    """The gateway's image says so itself."""
    assert re.fullmatch(r"[\w/-]+:v?\d[\w.-]*", SERVICES[name]["image"])
    assert name == "gateway" or SERVICES[name]["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}


def test_volumes_are_declared_and_hold_the_operator_s_policy_and_the_state() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())}
    assert {name for name in used if not name.startswith(".")} == set(COMPOSE["volumes"])
    mounts = dict(volume.split(":")[:2][::-1] for volume in GATEWAY["volumes"])
    policy = Path(GATEWAY["environment"]["LOWPASS_POLICY"])
    assert (ROOT / mounts[str(policy.parent)] / policy.name).is_file()
    assert mounts[instructions("VOLUME")[0]] == "state"


def test_the_gateway_waits_for_the_stores_that_its_addresses_name() -> None:
    addresses = [GATEWAY["environment"][f"LOWPASS_{name}_URL"] for name in ("DATABASE", "REDIS")]
    assert set(re.findall(r"(?:@|//)(\w+):\d+/", " ".join(addresses))) == set(GATEWAY["depends_on"])
    assert all(wait == {"condition": "service_healthy"} for wait in GATEWAY["depends_on"].values())
    postgres = SERVICES["postgres"]["environment"]
    user, password, database = (postgres[f"POSTGRES_{name}"] for name in ("USER", "PASSWORD", "DB"))
    assert addresses[0] == f"postgresql://{user}:{password}@postgres:5432/{database}"


def test_the_store_of_the_budgets_forgets_nothing() -> None:
    """Neither in a power cut nor for want of memory."""
    _, *options = SERVICES["redis"]["command"]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given == {"--appendonly": "yes", "--appendfsync": "always", "--maxmemory-policy": "noeviction"}


def test_the_engine_is_what_its_spec_becomes() -> None:
    printed = dumped(compose_of([read(ENGINE)])).removeprefix("services:\n").partition("volumes:\n  models")[0]
    assert printed in TEXT, f"copy it from `lowpass local compose {ENGINE}`"


def test_the_offered_target_reaches_the_engine_and_is_sound(tmp_path: Path) -> None:
    """The commands and the target of the comment, as they are written, in another folder."""
    command = offered(r"(lowpass local compose \S+ --external) > policies/").split()
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
