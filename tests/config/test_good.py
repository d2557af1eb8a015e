"""What a sound policy becomes."""

import hashlib
from pathlib import Path

import pytest
from msgspec import structs

from router.config import engines_needed, load
from router.types.price import Price, Rule, Window
from router.types.request import Modality
from router.types.secret import Secret
from router.types.target import Capability, Contract, Licence, Terms, Thinking, Timeouts
from tests.config import CATALOG, ENGINES, ENVIRON, FOLDER, loaded, told

EVERYTHING = FOLDER / "good" / "everything.yaml"
DEFAULT = FOLDER.parents[1] / "policies" / "default.yaml"
SMALL = """version: 1
targets: {local: {model: local/smollm2-135m-instruct, engine: smollm2}}
routes: {auto: {strategy: {kind: pinned, target: local}}}
"""


def test_everything_is_sound() -> None:
    assert told(EVERYTHING) == []


def test_hash_and_path() -> None:
    config = loaded(EVERYTHING)
    assert config.path == str(EVERYTHING)
    assert config.hash == hashlib.sha256(EVERYTHING.read_bytes()).hexdigest()[:16]


def test_target_from_the_catalog() -> None:
    mini = loaded(EVERYTHING).targets["mini"]
    assert (mini.id, mini.model.id, mini.provider.id, mini.effort) == ("mini", "openai/gpt-5-mini", "openai", "low")
    assert mini.base_url == "https://api.openai.com/v1"
    assert mini.api_key == Secret("sk-never-print-me")
    assert not mini.local


def test_target_at_an_engine() -> None:
    local = loaded(EVERYTHING).targets["local"]
    assert local.base_url == ENGINES["smollm2"].urls[0]
    assert local.api_key is None
    assert local.local


def test_target_written_out() -> None:
    config = loaded(EVERYTHING)
    own = config.targets["own"]
    assert own.model.id == "vllm/my-model"
    assert own.model.capabilities == {Capability.CHAT, Capability.TOOLS}
    assert own.model.thinking == Thinking(
        contract=Contract.EXACT, levels=("none", "high"), tokens=(0, 24576), minimum=1
    )
    assert own.base_url == "http://gpu1:8000/v1"
    assert own.region == "eu"
    assert own.headers == {"x-team": "blue sk-never-print-me"}
    assert own.timeouts == Timeouts(connect=1, first=2, between=3, total=4)
    assert own.retries == 0


def test_prices_are_exact() -> None:
    """0.00115 USD per million tokens has no exact binary fraction; as nano-USD it is a whole number."""
    config = loaded(EVERYTHING)
    assert config.targets["own"].model.price == Price(
        input=100_000_000,
        output=1_150_000,
        cache_read=10_000_000,
        cache_write=200_000_000,
        cache_write_1h=400_000_000,
        reasoning=300_000_000,
        input_audio=1_000_000_000,
        output_audio=2_000_000_000,
        cache_read_explicit=5_000_000,
        cache_read_audio=20_000_000,
        cache_write_12h=500_000_000,
        input_image=150_000_000,
        input_video=250_000_000,
        output_image=3_000_000_000,
        output_video=4_000_000_000,
        each={"web_search": 10_000_000_000_000},
        rules=(
            Rule(
                above=200_000,
                rates={"input": 200_000_000, "output": 2_300_000},
                each={"web_search": 20_000_000_000_000},
            ),
            Rule(service_tier="flex", region="eu", times=(1, 2)),
            Rule(
                since_ms=1_798_761_600_000,
                until_ms=1_830_297_600_000,
                windows=(
                    Window(start=1_350, end=360, days=frozenset({1, 7}), zone="Europe/Berlin"),
                    Window(start=720, end=780, days=frozenset({1, 7}), zone="Europe/Berlin"),
                ),
                times=(11, 10),
            ),
        ),
        version=f"policy {config.hash}",
    )


def test_routes_classes_and_budgets() -> None:
    config = loaded(EVERYTHING)
    assert {name: route.strategy.names() for name, route in config.routes.items()} == {
        "auto": ("local", "mini"),
        "first": ("own", "mini", "local"),
        "split": ("mini", "own"),
        "fixed": ("own",),
    }
    assert config.sensitivity.classes["pii"].jurisdictions_not == ("CN", "NO")
    assert [detector.data_class for detector in config.sensitivity.detectors] == ["secret", "pii", "eu"]
    assert [(budget.id, budget.unit, budget.limit, budget.window_name) for budget in config.budgets] == [
        ("everyone", "usd", 10_000_000_000, "day"),
        ("team", "usd", 1, "lifetime"),
        ("thoughts", "thinking_tokens", 5_000, "rolling 90m"),
        ("watched", "usd", 9_500_000_000, "week"),
        ("quiet", "usd", 1_000_000_000, "lifetime"),
        ("spare", "usd", 1_000_000_000, "month"),
        ("each", "usd", 100_000_000, "request"),
    ]
    assert config.budget_status == 429


def test_classes_stand_by_rank_and_equals_by_the_file_s_order() -> None:
    sensitivity = loaded(EVERYTHING).sensitivity
    assert list(sensitivity.classes) == ["internal", "pii", "eu", "distil", "secret", "never"]
    assert sensitivity.ranks() == {"internal": 0, "pii": 1, "eu": 2, "distil": 3, "secret": 4, "never": 5}


def test_classes_without_ranks_stand_as_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(SMALL + "sensitivity: {default: zoo, classes: {zoo: {}, ape: {}, yak: {}}}\n")
    assert list(loaded(path).sensitivity.classes) == ["zoo", "ape", "yak"]


def test_what_nobody_can_read_has_the_class_that_is_named_for_it_or_the_default(tmp_path: Path) -> None:
    sensitivity = loaded(EVERYTHING).sensitivity
    assert [sensitivity.unread(one) for one in Modality] == ["pii", "secret", "pii", "eu"]
    path = tmp_path / "policy.yaml"
    path.write_text(SMALL + "sensitivity: {default: b, classes: {a: {}, b: {}, c: {}}, unscannable: {audio: c}}\n")
    sensitivity = loaded(path).sensitivity
    assert [sensitivity.unread(one) for one in Modality] == ["b", "c", "b", "b"]


def test_redaction_leaves_the_class_that_is_named_or_the_default(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    classes = "a: {redact: remote}, b: {}, c: {redact: needed}, d: {redact: needed, redacted_to: a}"
    path.write_text(SMALL + "sensitivity: {default: b, classes: {" + classes + "}}\n")
    sensitivity = loaded(path).sensitivity
    assert {name: sensitivity.redacted_to(name) for name in "abcd"} == {"a": "b", "b": "b", "c": "b", "d": "a"}


def test_terms_of_a_target_stand_before_those_of_the_catalog_one_by_one() -> None:
    targets = loaded(EVERYTHING).targets
    standard = CATALOG.providers["openai"].terms
    assert targets["mini"].terms == Terms(
        training=standard.training,
        retention_days=0,
        baa=True,
        verify="header:x-region",
        evidence="contract X-12",
        expires_ms=4_070_908_800_000,
    )
    assert targets["lax"].terms == structs.replace(standard, training=True)
    assert targets["local"].terms == Terms()


def test_an_inline_model_s_licence_is_looked_up(tmp_path: Path) -> None:
    targets = loaded(EVERYTHING).targets
    assert targets["own"].model.licence == CATALOG.licences["Apache-2.0"]
    path = tmp_path / "policy.yaml"
    path.write_text(EVERYTHING.read_text("utf-8").replace("Apache-2.0", "Home-Made-1"))
    assert loaded(path).targets["own"].model.licence == Licence(id="Home-Made-1")


def test_a_target_without_a_price_is_charged_the_policy_s_worst_case(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "version: 1\n"
        "targets: {own: {model: {name: m, provider: vllm, context: 9, max_output: 9, capabilities: [chat]}}}\n"
        "routes: {auto: {strategy: {kind: pinned, target: own}}}\nunpriced: {input: 20, output: 100}\n"
    )
    config = loaded(path)
    price = config.targets["own"].model.price
    assert price == Price(input=20 * 10**9, output=100 * 10**9, version=f"policy {config.hash}", assumed=True)


@pytest.mark.parametrize("prefix", ["", "\ufeff", "---\n", "# comment\r\n"])
def test_ways_to_start_a_file(prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes((prefix + SMALL).encode())
    assert list(loaded(path).targets) == ["local"]


def test_secrets_stay_out_of_the_config_s_text() -> None:
    mini = loaded(EVERYTHING).targets["mini"]
    assert ENVIRON["OPENAI_API_KEY"] not in repr(mini)


def test_default_policy_needs_no_environment() -> None:
    config = load(DEFAULT, CATALOG, {}, ENGINES)
    assert list(config.routes) == ["auto"]
    assert len(DEFAULT.read_text("utf-8").splitlines()) <= 40
    assert [budget.id for budget in config.budgets] == ["everyone"]


def test_the_default_policy_s_commented_examples_work(tmp_path: Path) -> None:
    lines = DEFAULT.read_text("utf-8").splitlines()
    path = tmp_path / "policy.yaml"
    path.write_text("\n".join(line.replace("  # ", "  ", 1) if line.startswith("  # ") else line for line in lines))
    environ = {"OPENAI_API_KEY": "sk-a", "ANTHROPIC_API_KEY": "sk-b"}
    assert list(load(path, CATALOG, environ, ENGINES).targets) == ["local", "mini", "haiku", "own"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (SMALL, ("smollm2",)),
        ("targets: {a: {engine: x}, b: {engine: y}, c: {engine: x}, d: {engine: [z]}, e: 5}", ("x", "y")),
        ("targets: {a: {engine: x, nonsense: 1}}\nroutes: 7", ("x",)),
        ("targets: [x]", ()),
        ("targets: {a: {engine: x}", ()),
        ("", ()),
    ],
)
def test_engines_needed(text: str, names: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    assert engines_needed(path) == names


def test_engines_needed_of_no_file(tmp_path: Path) -> None:
    assert engines_needed(tmp_path / "none.yaml") == ()


def test_loops() -> None:
    loops = loaded(EVERYTHING).loops
    assert (loops.no_progress, loops.repeats, loops.session_turns, loops.exempt) == (40, 100, 1000, ("monitor",))
    assert (loops.session_nano, loops.cool_down_ms) == (25_000_000_000, 1_800_000)
    assert loops.spike is not None
    assert (loops.spike.window_ms, loops.spike.factor, loops.spike.floor) == (300_000, 10, 12_500_000_000)


def test_loops_are_watched_for_unasked() -> None:
    assert loaded(DEFAULT).loops.enabled


def test_evidence_that_has_expired_is_told_but_keeps_no_gateway_from_starting(tmp_path: Path) -> None:
    """A contract that ends in the night must not end the gateway at its next restart."""
    path = tmp_path / "policy.yaml"
    old = "{model: openai/gpt-5.4-mini, api_key: key, terms: {evidence: X-12, baa: true, expires: 2026-01-01}}"
    path.write_text(
        f"version: 1\ntargets:\n  old: {old}\nroutes: {{auto: {{strategy: {{kind: pinned, target: old}}}}}}\n"
    )
    (line,) = told(path)
    assert line.startswith("3:")
    assert "the evidence expired on 2026-01-01" in line
    assert loaded(path).targets["old"].terms.expires_ms is not None
