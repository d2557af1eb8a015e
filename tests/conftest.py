"""Fixtures for all tests."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from router.testing.upstream import Upstream

settings.register_profile("few", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
settings.register_profile("many", parent=settings.get_profile("few"), max_examples=500)
settings.load_profile("few")
"""How long an example takes says nothing on a busy machine. `many`: with `make test-nightly`."""

LONGEST = {"docs", "conformance", "money", "local_serving", "chaos", "gateway"}
"""Folders that begin first, so that none is still at work when the rest is done."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent.name not in LONGEST)


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
