"""`lowpass local plan | list` at the command line; and what policies make of the specs that they name."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from local_serving.recipe import Unlaunched
from local_serving.spec import known
from router.config.load import inspect_policy, load_policy, reload_policy
from router.errors import ConfigError
from router.testing import Done, lowpass
from router.types.price import Price
from tests.tables import each_row

HERE = Path(__file__).parent
POLICY, SPEC = ((HERE / name).read_text("utf-8") for name in ("own_policy.yaml", "own.yaml"))


def local(home: Path, *words: str) -> Done:
    return lowpass(home, "local", *words)


def policy(home: Path, spec: str = SPEC, engine: str = "", price: str = "") -> Path:
    (home / "own.yaml").write_text(spec)
    path = home / "policy.yaml"
    path.write_text(POLICY % (price, engine or home / "own.yaml"))
    return path


def test_the_engines_of_the_policy_are_planned(tmp_path: Path) -> None:
    done = local(tmp_path, "plan", "--policy", str(policy(tmp_path)))
    assert (done.status, done.error) == (0, "")
    assert all(part in done.out for part in ("│ own    │ 1 × l40s-48gb │", " yes │", "┃ may take ┃"))
    assert max(map(len, done.out.splitlines())) <= 80
    path = policy(tmp_path)
    path.write_text(path.read_text().replace(f", engine: {tmp_path / 'own.yaml'}", ""))
    done = local(tmp_path, "plan", "--policy", str(path))
    assert done.status == 1
    assert f"{path} needs no local engine: name one, as `lowpass local list` shows them" in done.error


def test_figures_are_exact_as_json(tmp_path: Path) -> None:
    done = local(tmp_path, "plan", "gpt-oss-120b", "smollm2", "--json")
    assert done.status == 0
    large, small = json.loads(done.out)
    assert (large["engine"], large["gpus"], large["fits"], large["token"]) == ("gpt-oss-120b", 1, True, 36_864)
    assert large["usd"]["output"]["best"] < large["usd"]["output"]["worst"]
    assert (small["device"], small["usd"]) == ("cpu", None)
    assert small["memory_bytes"] == small["weights"] + small["overhead"] + small["kv_cache"] + small["prompt_cache"]


EXTERNAL = "name: own\nengine: external\nmodel: m\nurls: [http://gpu1:8000/v1]\n"
REFUSED = [
    (SPEC.replace("vllm\n", "vllm\ntools: hermess\n"), "own.yaml:3:8: vLLM 0.32 has no tool parser 'hermess'"),
    (SPEC.replace("me/own", "./gone").partition("arch")[0], "there is no model folder"),
    (SPEC.partition("architecture")[0], "me/own is an id on a hub, which is not asked: add `architecture`"),
]


@each_row(
    "spec, status, out, error",
    [
        (EXTERNAL, 0, "own.yaml: not run by lowpass", ""),
        (SPEC.replace("l40s-48gb", "t4-16gb"), 1, "own.yaml: spread it over 2 × t4-16gb (tensor × 2)", ""),
        *((spec, 1, "", message) for spec, message in REFUSED),
    ],
)
def test_the_status_says_whether_all_fit(tmp_path: Path, spec: str, status: int, out: str, error: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(spec)
    done = local(tmp_path, "plan", str(own), "smollm2")
    assert (done.status, bool(done.error)) == (status, bool(error))
    assert out in done.out
    assert error in done.error
    assert any(line.startswith("│ smollm2") for line in done.out.splitlines())
    assert error in (
        json.loads(local(tmp_path, "plan", str(tmp_path / "own.yaml"), "--json").out)[0].get("error") or ""
    )


def test_gpus_and_engines_are_listed(tmp_path: Path) -> None:
    assert json.loads(local(tmp_path, "plan", "--gpus", "--json").out)["h100-80gb"]["bandwidth"] == 3350
    assert "h200-141gb" in local(tmp_path, "plan", "--gpus").out
    listed = local(tmp_path, "list").out
    assert all(f"\n│ {name} " in listed for name in known())
    assert "36 state + 12 full" in " ".join(listed.replace("│", " ").split())
    assert {spec["name"] for spec in json.loads(local(tmp_path, "list", "--json").out)} == set(known())


def test_check_and_serve_name_a_broken_spec_where_the_policy_does(tmp_path: Path) -> None:
    path = policy(tmp_path, SPEC.replace("context: 8192", "contxt: 8192").replace("l40s", "l40"))
    told = [str(problem) for problem in inspect_policy(path)]
    place = f"{path}:3:{POLICY.splitlines()[2].index('%s}')}"
    assert [line.partition(f"{tmp_path}/own.yaml:")[2] for line in told if "own.yaml:" in line] == [
        "1:1: the key 'context' is missing in the spec: add context: …",
        "5:1: unknown key 'contxt' in the spec: did you mean 'context'?",
        "7:6: unknown GPU 'l40-48gb': did you mean 'l40s-48gb'?",
    ]
    assert all(line.startswith(place.rpartition(":")[0]) for line in told)
    done = lowpass(tmp_path, "serve", "--policy", str(path), "--port", "0")
    assert done.status == 1
    assert "own.yaml:5:1: unknown key 'contxt' in the spec: did you mean 'context'?" in done.error
    missing = [str(problem) for problem in inspect_policy(policy(tmp_path, engine=str(tmp_path / "none.yaml")))]
    assert "none.yaml:1:1: no such file: create it, or name another spec file" in missing[0]


def test_two_specs_of_one_name_would_be_one_engine(tmp_path: Path) -> None:
    path = policy(tmp_path)
    (tmp_path / "other.yaml").write_text(SPEC)
    own = path.read_text().splitlines()[2]
    other = own.replace("own:", "too:", 1).replace("own.yaml", "other.yaml")
    path.write_text(path.read_text().replace(own, f"{own}\n{other}"))
    first = str(inspect_policy(path)[0])
    assert first.startswith(f"{path}:4:")
    assert first.endswith(
        f"'own' has two specs, {tmp_path}/own.yaml and {tmp_path}/other.yaml: give one of them another name"
    )


def test_a_target_without_a_price_gets_the_planned_one(tmp_path: Path) -> None:
    def price(path: Path) -> Price:
        price = load_policy(path).targets["own"].model.price
        assert price is not None
        return price

    path = policy(tmp_path)
    assert inspect_policy(path) == ()
    assert price(path).version == "planned: 1 × l40s-48gb at 1.20 USD/h"
    assert price(policy(tmp_path, price=", price: {input: 7, output: 8}")).output == Decimal(8) * 10**9
    path = policy(tmp_path, SPEC.partition("cost")[0])
    assert any("has no price" in problem.what for problem in inspect_policy(path)), "no price of an hour"


def test_specs_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    """Commands that name one engine don't wait for all."""
    own = str(tmp_path / "own.yaml")
    engines = Unlaunched([own, "unknown"])
    assert sorted(engines) == sorted([*known(), own])
    policy(tmp_path)
    assert engines[own].name == "own"


def test_an_engine_that_an_edit_brings_waits_for_the_next_start(tmp_path: Path) -> None:
    """A gateway that serves keeps the policy of before, and says what to do."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY % ("", "gpt-oss-20b"))
    with pytest.raises(ConfigError) as refused:
        reload_policy(path, {"smollm2": Unlaunched(())["smollm2"]})
    (problem,) = refused.value.problems
    assert problem.line == 3
    assert "'gpt-oss-20b' is not one of those that this gateway started" in str(problem)
    assert "restart the gateway" in str(problem)
    path.write_text(POLICY % (", price: {input: 0, output: 0}", "smollm2"))
    assert reload_policy(path, {"smollm2": Unlaunched(())["smollm2"]}).targets["own"].engine
