"""No container engine runs here: the image's recipe is read and compared with the project."""

import json
import re

from router.api.asgi import ALIVE
from tests.packaging.project import ROOT, dockerfile, documented_settings

IMAGE = dockerfile()


def values(keyword: str) -> list[str]:
    return [step.value for step in IMAGE if step.keyword == keyword]


def settings() -> dict[str, str]:
    return dict(re.findall(r"(LOWPASS_\w+)=(\S+)", " ".join(values("ENV"))))


def test_both_stages_start_from_the_same_tagged_python() -> None:
    images = {value.split()[0] for value in values("FROM")}
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", images.pop())


def test_everything_that_is_copied_exists_and_is_let_in() -> None:
    sources = [source for value in values("COPY") if "--from" not in value for source in value.split()[:-1]]
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / source).exists() for source in sources)
    assert {source.split("/")[0] for source in sources} == admitted


def test_packages_come_from_the_hashed_files_only() -> None:
    commands = [command.strip() for value in values("RUN") for command in value.split("&&")]
    hashed, ourselves = (command for command in commands if "pip install" in command)
    assert "--no-deps --require-hashes" in hashed
    assert "--no-deps --no-build-isolation" in ourselves
    assert ourselves.endswith(" .")


def test_the_image_sets_only_settings_that_exist() -> None:
    assert settings().keys() <= documented_settings()


def test_the_gateway_runs_as_a_user_who_owns_the_state() -> None:
    home = settings()["LOWPASS_HOME"]
    assert values("USER") == ["lowpass"]
    assert values("VOLUME") == [home]
    assert f"--owner lowpass --mode 700 {home}" in " ".join(values("RUN"))


def test_port_and_health_check_are_the_gateway_s_own() -> None:
    port = settings()["LOWPASS_PORT"]
    assert values("EXPOSE") == [port]
    probe = json.loads(values("HEALTHCHECK")[0].partition("CMD ")[2])[-1]
    assert f"http://127.0.0.1:{port}/health/live" in probe
    assert ALIVE in probe
    compile(probe, "HEALTHCHECK", "exec")


def test_the_command_is_the_one_that_the_project_installs() -> None:
    assert json.loads(values("ENTRYPOINT")[0]) == ["lowpass"]
    assert json.loads(values("CMD")[0]) == ["serve"]


def test_every_line_is_an_instruction() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {step.keyword for step in IMAGE} <= known
