"""What a sound policy becomes, and that a running gateway notices edits of it."""

import hashlib
import os
from pathlib import Path

import yaml
from msgspec import convert, structs

from router.config.check import Watcher, engines_needed, load
from router.config.policy import Config
from router.types.price import Price
from router.types.request import Modality
from router.types.target import Capability, Licence, Secret, Terms, Thinking, Timeouts
from tests.config import CATALOG, ENGINES, ENVIRON, FOLDER, loaded, told
from tests.tables import data, each_row

EVERYTHING = FOLDER / "good" / "everything.yaml"
DEFAULT = FOLDER.parents[1] / "policies" / "default.yaml"
SMALL = """version: 1
targets: {local: {model: local/smollm2-135m-instruct, engine: smollm2}}
routes: {auto: {strategy: {kind: pinned, target: local}}}
"""


def policy(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


def test_targets_of_the_catalog_at_an_engine_and_written_out() -> None:
    targets = loaded(EVERYTHING).targets
    mini, local, own = targets["mini"], targets["local"], targets["own"]
    assert (mini.id, mini.model.id, mini.provider.id, mini.effort) == ("mini", "openai/gpt-5-mini", "openai", "low")
    assert (mini.base_url, mini.api_key) == ("https://api.openai.com/v1", Secret(ENVIRON["OPENAI_API_KEY"]))
    assert ENVIRON["OPENAI_API_KEY"] not in repr(mini)
    assert (mini.provider.local, local.provider.local) == (False, True)
    assert (local.base_url, local.api_key) == (ENGINES["smollm2"].urls[0], None)
    assert own.model.id == "vllm/my-model"
    assert own.model.capabilities == {Capability.CHAT, Capability.TOOLS}
    levels = {"levels": ("none", "high"), "tokens": (0, 24576), "minimum": 1}
    assert own.model.thinking == convert({"contract": "exact", **levels}, Thinking)
    assert (own.base_url, own.region, own.retries) == ("http://gpu1:8000/v1", "eu", 0)
    assert own.headers == {"x-team": "blue sk-never-print-me"}
    assert own.timeouts == Timeouts(connect=1, first=2, between=3, total=4)


def test_everything_is_sound_and_prices_are_exact() -> None:
    """0.00115 USD per million tokens has no exact binary fraction; as nano-USD it is a whole number."""
    assert told(EVERYTHING) == []
    config = loaded(EVERYTHING)
    assert (config.path, config.hash) == (str(EVERYTHING), hashlib.sha256(EVERYTHING.read_bytes()).hexdigest()[:16])
    expected = yaml.safe_load((EVERYTHING.parent / "price.yaml").read_text("utf-8"))
    assert config.targets["own"].model.price == convert(expected | {"version": f"policy {config.hash}"}, Price)


def test_routes_classes_budgets_and_loops() -> None:
    config = loaded(EVERYTHING)
    assert {name: route.strategy.names() for name, route in config.routes.items()} == {
        "auto": ("local", "mini"),
        "first": ("own", "mini", "local"),
        "split": ("mini", "own"),
        "fixed": ("own",),
    }
    assert config.sensitivity.classes["pii"].jurisdictions_not == ("CN", "NO")
    assert [detector.data_class for detector in config.sensitivity.detectors] == ["secret", "pii", "eu"]
    budgets = [[budget.id, budget.unit, budget.limit, budget.window_name] for budget in config.budgets]
    assert budgets == data(__file__, "budgets.yaml")
    assert config.budget_status == 429
    loops = config.loops
    assert (loops.no_progress, loops.repeats, loops.session_turns, loops.exempt) == (40, 100, 1000, ("monitor",))
    assert loops.cool_down_ms == 1_800_000
    assert loops.spike is not None
    assert (loops.spike.window_ms, loops.spike.factor, loops.spike.floor) == (300_000, 10, 12_500_000_000)
    assert loaded(DEFAULT).loops.enabled, "unasked"


def test_classes_stand_by_rank_and_equals_by_the_file_s_order(tmp_path: Path) -> None:
    sensitivity = loaded(EVERYTHING).sensitivity
    assert list(sensitivity.classes) == ["internal", "pii", "eu", "distil", "secret", "never"]
    assert sensitivity.ranks() == {"internal": 0, "pii": 1, "eu": 2, "distil": 3, "secret": 4, "never": 5}
    path = policy(tmp_path, SMALL + "sensitivity: {default: zoo, classes: {zoo: {}, ape: {}, yak: {}}}\n")
    assert list(loaded(path).sensitivity.classes) == ["zoo", "ape", "yak"]


def test_what_can_t_be_read_and_what_was_redacted_have_the_class_that_is_named_or_the_default(tmp_path: Path) -> None:
    assert [loaded(EVERYTHING).sensitivity.unread(part) for part in Modality] == ["pii", "secret", "pii", "eu"]
    classes = "a: {redact: remote}, b: {}, c: {redact: needed}, d: {redact: needed, redacted_to: a}"
    text = SMALL + "sensitivity: {default: b, classes: {" + classes + "}, unscannable: {audio: c}}\n"
    sensitivity = loaded(policy(tmp_path, text)).sensitivity
    assert [sensitivity.unread(part) for part in Modality] == ["b", "c", "b", "b"]
    assert {name: sensitivity.redacted_to(name) for name in "abcd"} == {"a": "b", "b": "b", "c": "b", "d": "a"}


def test_terms_of_a_target_stand_before_those_of_the_catalog_one_by_one() -> None:
    targets = loaded(EVERYTHING).targets
    standard = CATALOG.providers["openai"].terms
    stated = Terms(baa=True, verify="header:x-region", evidence="contract X-12", expires_ms=4_070_908_800_000)
    assert targets["mini"].terms == structs.replace(stated, training=standard.training, retention_days=0)
    assert targets["lax"].terms == structs.replace(standard, training=True)
    assert targets["local"].terms == Terms()


def test_an_inline_model_s_licence_is_looked_up(tmp_path: Path) -> None:
    assert loaded(EVERYTHING).targets["own"].model.licence == CATALOG.licences["Apache-2.0"]
    path = policy(tmp_path, EVERYTHING.read_text("utf-8").replace("Apache-2.0", "Home-Made-1"))
    assert loaded(path).targets["own"].model.licence == Licence(id="Home-Made-1")


def test_a_target_without_a_price_is_charged_the_policy_s_worst_case(tmp_path: Path) -> None:
    own = "{model: {name: m, provider: vllm, context: 9, max_output: 9, capabilities: [chat]}}"
    text = SMALL.replace("{model: local/smollm2-135m-instruct, engine: smollm2}", own)
    config = loaded(policy(tmp_path, text + "unpriced: {input: 20, output: 100}\n"))
    price = config.targets["local"].model.price
    assert price == Price(input=20 * 10**9, output=100 * 10**9, version=f"policy {config.hash}", assumed=True)


@each_row("prefix", ["", "\ufeff", "---\n", "# comment\r\n"])
def test_ways_to_start_a_file(prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes((prefix + SMALL).encode())
    assert list(loaded(path).targets) == ["local"]


def test_default_policy_needs_no_environment() -> None:
    config = load(DEFAULT, CATALOG, {}, ENGINES)
    assert list(config.routes) == ["auto"]
    assert len(DEFAULT.read_text("utf-8").splitlines()) <= 40
    assert [budget.id for budget in config.budgets] == ["everyone"]


def test_the_default_policy_s_commented_examples_work(tmp_path: Path) -> None:
    lines = DEFAULT.read_text("utf-8").splitlines()
    plain = (line.replace("  # ", "  ", 1) if line.startswith("  # ") else line for line in lines)
    path = policy(tmp_path, "\n".join(plain))
    environ = {"OPENAI_API_KEY": "sk-a", "ANTHROPIC_API_KEY": "sk-b"}
    assert list(load(path, CATALOG, environ, ENGINES).targets) == ["local", "mini", "haiku", "own"]


@each_row(
    "text, names",
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
    assert engines_needed(policy(tmp_path, text)) == names
    assert engines_needed(tmp_path / "none.yaml") == ()


def test_evidence_that_has_expired_is_told_but_keeps_no_gateway_from_starting(tmp_path: Path) -> None:
    """A contract that ends in the night must not end the gateway at its next restart."""
    old = "{model: openai/gpt-5.4-mini, api_key: key, terms: {evidence: X-12, baa: true, expires: 2026-01-01}}"
    text = SMALL.replace("{model: local/smollm2-135m-instruct, engine: smollm2}", old)
    path = policy(tmp_path, text)
    (line,) = told(path)
    assert line.startswith("2:")
    assert "the evidence expired on 2026-01-01" in line
    assert loaded(path).targets["local"].terms.expires_ms is not None


def test_each_edit_is_seen_once_whether_it_is_good_bad_or_the_end_of_the_file(tmp_path: Path) -> None:
    path = policy(tmp_path, SMALL)
    watcher = Watcher(path, loaded)
    assert watcher.poll() is None
    for text, expected in (
        (SMALL.replace("auto", "other"), "other"),
        (SMALL.replace("version: 1", "version: 22"), "policy.yaml:1:"),
        (SMALL, "auto"),
        ("", "no such file"),
        (SMALL, "auto"),
    ):
        path.write_text(text) if text else path.unlink()
        seen = watcher.poll()
        assert expected in (seen.routes if isinstance(seen, Config) else str(seen))
        assert watcher.poll() is None
    # A replaced file of the same time and size, as editors and mounted volumes do it.
    status, other = path.stat(), path.with_name("new.yaml")
    other.write_text(SMALL.replace("auto", "oven"))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    seen = watcher.poll()
    assert isinstance(seen, Config)
    assert list(seen.routes) == ["oven"]
