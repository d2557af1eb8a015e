"""Answers in odd framing, as our client and h11 read them."""

import asyncio

import pytest

from bench.framing import differences


@pytest.mark.parametrize("cases", [500, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_what_h11_refuses_or_reads_in_another_way_is_never_an_answer(cases: int) -> None:
    assert [row for row in asyncio.run(differences(range(cases))) if not row.harmless] == []
