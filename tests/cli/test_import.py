"""`lowpass import litellm`: the policy serves what the configuration served, and says what it can't."""

from pathlib import Path

import yaml

from router.testing import Gateway
from router.testing.upstream import Upstream
from tests.docs import blocks, page
from tests.gateway.running import Process, user
from tests.tables import data

LITELLM = data(__file__, "litellm.yaml")


def test_a_configuration_serves_as_a_policy(tmp_path: Path, upstream: Upstream) -> None:
    config, out = tmp_path / "config.yaml", tmp_path / "policy.yaml"
    config.write_text(LITELLM["config"].replace("{url}", upstream.base_url("openai")))
    home = Process(tmp_path / "home", {"version": 1}, {"KEY_OF_A": "sk-a", "OPENAI_API_KEY": "sk-b"})
    status, output = home.lowpass("import", "litellm", str(config), "--out", str(out))
    assert status == 0
    lines = output.splitlines()
    for line, text in LITELLM["places"].items():
        assert any(row.startswith(f"{config}:{line}:") and text in row for row in lines), (line, text, output)
    assert "sk-in-clear" not in out.read_text() + output
    policy = yaml.safe_load(out.read_text())
    assert policy["budgets"] == [{"id": "all", "limit_usd": 3.0, "window": "month"}]
    assert policy["routes"]["shared"]["strategy"]["weights"] == {"shared-1": 1.0, "shared-2": 1.0, "spare": 0.0}
    assert home.lowpass("check", str(out))[1].endswith("policy.yaml: ok\n")
    assert home.lowpass("import", "litellm", str(config), "--out", str(out))[0] == 1, "nothing is overwritten"
    with Gateway(tmp_path / "served", policy, home.environ) as gateway:
        for name, target in (("team model", "team-model"), ("shared", "spare"), ("gpt-4", "spare"), ("spare", "spare")):
            reply = gateway.post("/v1/chat/completions", {"model": name, "messages": user("Say hello.")})
            assert (reply.status, gateway.settled(reply.id)["target"]) == (200, target), name


def test_the_example_of_the_page_becomes_the_policy_beside_it(tmp_path: Path) -> None:
    config, policy = blocks(page("docs/from-litellm.md"), "yaml")
    (tmp_path / "config.yaml").write_text(config)
    home = Process(tmp_path / "home", {"version": 1})
    assert (
        home.lowpass("import", "litellm", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "made.yaml"))[0] == 0
    )
    assert yaml.safe_load((tmp_path / "made.yaml").read_text()) == yaml.safe_load(policy)


def test_what_is_no_configuration_is_refused_with_its_place(tmp_path: Path) -> None:
    home, config = Process(tmp_path / "home", {"version": 1}), tmp_path / "config.yaml"
    for text, reason in (
        ("- 1", ":1:1: a LiteLLM configuration is a mapping"),
        ("a: [", ":2:1: not valid YAML"),
        ("", ":1:1: the file is empty"),
        ("router_settings: {fallbacks: [a]}", ":1:1: a value of another kind"),
        ("litellm_settings: {max_budget: much}", ":1:1: a value of another kind"),
    ):
        config.write_text(text)
        status, output = home.lowpass("import", "litellm", str(config))
        assert (status, f"{config}{reason}" in output) == (1, True), output
