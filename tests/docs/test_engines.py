"""docs/engines.md against the specs: every key, every part, every shipped engine."""

import pytest
from msgspec import Struct, inspect

from local_serving.spec import External, Llamacpp, Vllm, known
from local_serving.spec.checks import NEEDS
from local_serving.spec.spec import Architecture, Cost, Parallelism, Reasoning
from tests.docs import page, quoted, rows

TEXT = page("docs/engines.md")
COMMON = {row["key"] for row in rows(TEXT, "key", "of all engines")}


@pytest.mark.parametrize(
    ("kind", "column"),
    [(Vllm, "of vLLM"), (Llamacpp, "of llama.cpp"), (External, "of a server that somebody else runs")],
)
def test_every_key_of_a_spec_has_its_row(kind: type[Struct], column: str) -> None:
    told = {row["key"] for row in rows(TEXT, "key", column)}
    assert told
    assert told | COMMON == {*kind.__struct_fields__, "engine"}


@pytest.mark.parametrize(
    ("part", "kind"),
    [("cost", Cost), ("parallelism", Parallelism), ("reasoning", Reasoning), ("architecture", Architecture)],
)
def test_every_key_of_a_part_has_its_row(part: str, kind: type[Struct]) -> None:
    assert [row["key"] for row in rows(TEXT, "part", "key", "what") if row["part"] == part] == list(
        kind.__struct_fields__
    )


def test_defaults_are_as_told() -> None:
    for kind, column in ((Vllm, "of vLLM"), (Llamacpp, "of llama.cpp")):
        described = inspect.type_info(kind)
        assert isinstance(described, inspect.StructType)
        told = {row["key"]: row["default"] for row in rows(TEXT, "key", column)}
        for field in described.fields:
            if isinstance(field.default, int | float) and field.encode_name in told:
                assert told[field.encode_name] == str(field.default).lower(), field.encode_name


def test_kinds_of_attention_need_what_is_told() -> None:
    told = {row["kind"]: row["it needs"].split(", ") for row in rows(TEXT, "kind", "what it keeps")}
    assert told == {kind: list(keys) for kind, keys in NEEDS.items()}


def test_every_shipped_engine_is_listed_for_what_it_is() -> None:
    section = TEXT.partition("## Engines that come with lowpass")[2].partition("\n## ")[0]
    named = {word for word in quoted(section)}
    assert named == set(known())
