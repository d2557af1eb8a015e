"""Whatever stands in a column or a document comes back as it was."""

import json

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from router.ledger.packed import document
from router.ledger.packed.column import Column, decoded, encoded, ints, numbers

WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(
    st.floats(allow_nan=False), st.decimals(0, 1, places=4).map(float), st.sampled_from([0.0, -0.0, 1.0, 1e-05])
)
TEXTS = st.one_of(
    st.text(),
    st.integers(-(10**9), 10**9).map(str),
    st.decimals(-10, 10, places=3).map(str),
    st.sampled_from(["1.0", "1.", "-0.5", "-0", "007", "1e5", "0a" * 16, "0A" * 16, "true"]),
)
VALUES = st.one_of(
    *(st.lists(kind) for kind in (WHOLE, NUMBERS, TEXTS)),
    *(st.lists(st.none() | kind) for kind in (WHOLE, NUMBERS, TEXTS, st.nothing())),
    st.lists(st.one_of(st.integers(0, 5), st.floats(0, 5), st.sampled_from("abc"), st.none())),
    st.lists(st.sampled_from(["a", "b"]), min_size=20),
    st.lists(st.uuids().map(lambda one: one.hex), min_size=1),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=12,
)


@given(VALUES)
def test_values_come_back(values: list[str | int | float | None]) -> None:
    data = msgspec.msgpack.encode(encoded(values))
    back = decoded(msgspec.msgpack.decode(data, type=Column))
    assert list(map(repr, back)) == list(map(repr, values))


@given(st.lists(WHOLE, min_size=1))
def test_numbers_come_back(values: list[int]) -> None:
    assert numbers(ints(np.array(values, np.int64))).tolist() == values


@given(st.lists(st.one_of(JSON.map(json.dumps), st.text()), max_size=6), st.data())
def test_documents_come_back(documents: list[str], data: st.DataObject) -> None:
    ids = [data.draw(st.sampled_from(["0123abcd", "a", "", one[:3]])) for one in documents]
    packed = msgspec.msgpack.encode(document.packed(documents, ids))
    assert document.unpacked(msgspec.msgpack.decode(packed, type=document.Documents), ids) == documents


def test_what_repeats_takes_no_room() -> None:
    """A decision is a page of JSON; of a thousand alike little more than one is kept."""
    page = json.dumps({"weighed": [{"target": f"target {at}", "why": "dearer", "cost": at} for at in range(40)]})
    packed = msgspec.msgpack.encode(document.packed([page] * 1000, ["x"] * 1000))
    assert len(packed) < 2 * len(page)
