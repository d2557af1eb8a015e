"""Fixtures for all tests."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from router.budget.redis import link
from router.testing.upstream import Upstream

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
"""How long an example takes says nothing on a busy machine."""

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


@pytest.fixture
def patient_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is booked, never of how soon: a machine that stands still for a second fails none of them."""
    monkeypatch.setattr(link, "CONNECT_S", 10.0)
    monkeypatch.setattr(link, "COMMAND_S", 10.0)
