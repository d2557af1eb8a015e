"""The tables of docs/{budgets,engines,errors,reports,settings,thinking}.md equal the code."""

import ast
import re
from importlib import import_module
from typing import Any, get_args

import typer
from msgspec import structs

from adapters.thinking import SCALE, applied
from local_serving import spec as specs
from local_serving.spec import Architecture, EngineCost, External, Llamacpp, Parallelism, ReasoningParser, Vllm
from router.cli import app
from router.config.policy import Policy
from router.decide import eligibility
from router.errors import TABLE
from router.report.catalog import REPORTS
from router.report.report import columns
from router.settings import SHIPPED_POLICY
from router.settings import read as settings_of
from router.types.attempt import Call
from router.types.request import Endpoint
from router.types.target import EFFORTS, Contract, Target, Thinking, ThinkingField
from router.types.yaml_model import YamlPart
from tests.config import CATALOG
from tests.docs import ROOT, page, quoted, rows
from tests.tables import each_row

# Budgets


@each_row("row", rows(page("docs/budgets.md"), "what", "value", "constant"), ids=lambda row: row["constant"])
def test_numbers_of_budgets(row: dict[str, str]) -> None:
    name, _, path = row["constant"].partition(" in ")
    module = import_module(path.removesuffix(".py").replace("/", "."))
    assert float(row["value"].replace(",", "")) == getattr(module, name)


# Engines

ENGINES = page("docs/engines.md")
COMMON = {row["key"] for row in rows(ENGINES, "key", "of all engines")}
KINDS: dict[str, type[YamlPart]] = {"of vLLM": Vllm, "of llama.cpp": Llamacpp}
PARTS = {"cost": EngineCost, "parallelism": Parallelism, "reasoning": ReasoningParser, "architecture": Architecture}


@each_row("column, kind", [*KINDS.items(), ("of an external server", External)])
def test_every_key_of_a_spec_has_its_row_and_default(column: str, kind: type[YamlPart]) -> None:
    documented = {row["key"]: row.get("default") for row in rows(ENGINES, "key", column)}
    assert documented
    assert documented.keys() | COMMON == kind.model_fields.keys()
    for key, field in kind.model_fields.items() if column in KINDS else ():
        if isinstance(field.default, int | float) and key in documented:
            assert documented[key] == str(field.default).lower(), key


@each_row("part, kind", PARTS.items())
def test_every_key_of_a_part_has_its_row(part: str, kind: type[YamlPart]) -> None:
    documented = [row["key"] for row in rows(ENGINES, "part", "key", "what") if row["part"] == part]
    assert documented == list(kind.model_fields)


def test_what_kinds_of_attention_need_and_which_engines_are_shipped() -> None:
    documented = {row["kind"]: row["it needs"].split(", ") for row in rows(ENGINES, "kind", "what it keeps")}
    assert documented == {kind: list(keys) for kind, keys in specs.NEEDS.items()}
    section = ENGINES.partition("## Engines that come with lowpass")[2].partition("\n## ")[0]
    assert set(quoted(section)) == set(specs.known())


# Errors

ERRORS = page("docs/errors.md")


def test_codes_are_those_of_every_place_that_makes_an_error() -> None:
    documented = [(int(row["status"]), row["code"]) for row in rows(ERRORS, "status", "code", "when")]
    assert len(documented) == len(set(documented))
    raised = {(rule.status, rule.code) for rule in TABLE.values()}
    for path in [*(ROOT / "router").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ClientError":
                raised |= _codes(*map(ast.unparse, node.args[:2]))
    assert set(documented) == raised


def _codes(status: str, code: str) -> set[tuple[int, str]]:
    """Of `ClientError(status, code, …)`; a computed status stands for all that it can be."""
    if (status, code) == ("rule.status", "rule.code"):
        return set()
    computed = {"status": get_args(Policy.model_fields["budget_status"].annotation)}
    return {(number, ast.literal_eval(code)) for number in computed.get(status) or (int(status),)}


def test_failures() -> None:
    words = {"yes": True, "no": False}
    documented = {
        row["kind"]: (*(words[row[name]] for name in ("retry", "fall back", "trips")), int(row["status"]), row["code"])
        for row in rows(ERRORS, "kind", "retry")
    }
    rules = {str(k): (rule.retry, rule.fall_back, rule.trips, rule.status, rule.code) for k, rule in TABLE.items()}
    assert documented == rules


def test_reasons_are_in_the_order_of_the_checks() -> None:
    """Which decides which one is given."""
    assert [row["reason"] for row in rows(ERRORS, "reason")] == [*get_args(eligibility.Reason), "saturated"]


# Reports

REPORT = page("docs/reports.md")


def test_every_report_is_there_with_what_it_takes() -> None:
    named = [(re.sub(r"\[(.+)\]\(.+\)", r"\1", row["report"]), row) for row in rows(REPORT, "report", "what it tells")]
    documented = {name: (row["grouped by"], row["filtered by"]) for name, row in named}
    assert documented == {each.name: (", ".join(each.by), ", ".join(each.where)) for each in REPORTS.values()}


def test_every_column_of_spend_is_there() -> None:
    section = REPORT.partition("\n## Spend\n")[2].partition("\n## ")[0]
    names = [column.name for column in columns("spend")]
    documented: list[str] = []
    for cell in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE):
        ends = quoted(cell)
        between = names[names.index(ends[-2]) : names.index(ends[-1]) + 1] if "…" in cell else ends[-2:]
        documented += [*ends[:-2], *between]
    assert sorted(documented) == sorted(names)


# Settings

SETTINGS = page("docs/settings.md")


def test_variables_and_their_defaults() -> None:
    defaults = {row["variable"]: row["default"] for row in rows(SETTINGS, "variable")}
    sources = [path for folder in ("router", "adapters", "local_serving") for path in (ROOT / folder).rglob("*.py")]
    assert defaults.keys() == {
        name for path in sources for name in re.findall(r"\bLOWPASS_[A-Z_]+\b", path.read_text("utf-8"))
    }
    settings = settings_of({"LOWPASS_HOME": "/tmp"})
    assert (settings.host, str(settings.port)) == (defaults["LOWPASS_HOST"], defaults["LOWPASS_PORT"])
    assert (ROOT / defaults["LOWPASS_POLICY"]).samefile(SHIPPED_POLICY)


def test_commands() -> None:
    documented = {
        row["command"]: set(filter(None, re.split(r",\s*", row["arguments and options"])))
        for row in rows(SETTINGS, "command")
    }
    assert documented == dict(_commands("lowpass", typer.main.get_command(app)))


def _commands(name: str, group: Any) -> list[tuple[str, set[str]]]:
    """Typer brings its own copy of click, whose classes have no public name."""
    if not hasattr(group, "commands"):
        options = {each.opts[-1] for each in group.params if each.param_type_name == "option"}
        words = {each.name.upper(): each.required for each in group.params if each.param_type_name != "option"}
        return [(name, options | {word if needed else f"[{word}]" for word, needed in words.items()})]
    parts = {f"{name} {sub}": group.get_command(None, sub) for sub in group.list_commands(None)}
    return [row for part in parts.items() for row in _commands(*part)]


# Thinking

THINKING = page("docs/thinking.md")
CONTROLS = rows(THINKING, "contract", "effort", "budget", "control")


def test_contracts_fields_words_and_the_scale() -> None:
    for column in (rows(THINKING, "contract", "the model takes"), CONTROLS):
        assert {row["contract"] for row in column} == set(Contract)
    assert {row["value"] for row in rows(THINKING, "value")} == set(ThinkingField)
    (words,) = re.findall(r"from least to most: ((?:`\w+`,?\s+)+`\w+`)", THINKING)
    assert tuple(quoted(words)) == EFFORTS
    stated = [(word, int(size.replace(",", ""))) for word, size in re.findall(r"(\w+) = ([\d,]+)", THINKING)]
    assert stated == list(zip(SCALE.levels, SCALE.tokens, strict=True))


@each_row("row", CONTROLS, ids=lambda row: "-".join(filter(None, row.values())))
def test_what_would_be_sent(row: dict[str, str]) -> None:
    contract, levels = Contract(row["contract"]), ("none", "low", "high")
    thinking = Thinking(contract=contract, levels=levels, tokens=(0, 1024, 8192), minimum=512)
    model, provider = CATALOG.models["openai/gpt-5-mini"]
    model = structs.replace(model, thinking=thinking)
    target = Target(id="any", model=model, provider=CATALOG.providers[provider], base_url="")
    most = int(row["budget"]) if row["budget"] else None
    call = Call(
        target=target, endpoint=Endpoint.CHAT, body={}, model="auto", effort=row["effort"] or None, thinking_budget=most
    )
    assert applied(call).text == row["control"]
