"""Fixtures for all tests."""

from collections.abc import Iterator

import pytest

from tests.upstream import Upstream


@pytest.fixture(scope="session")
def upstream_server() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(upstream_server: Upstream) -> Iterator[Upstream]:
    """The scripted upstream, empty of other tests' requests; its own mistakes fail the test."""
    upstream_server.clear()
    yield upstream_server
    assert upstream_server.errors == []
