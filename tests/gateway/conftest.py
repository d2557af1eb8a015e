"""One gateway a module, under the policy that the module's own `policy(url)` writes for the scripted upstream."""

from collections.abc import Iterator

import pytest

from tests.gateway.running import Gateway, serving
from tests.stores import postgres
from tests.upstream import Upstream

__all__ = ["gateway", "postgres", "served"]


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream
) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("gateway")
    with serving(home, request.module.policy(upstream_server.url)) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: Gateway, upstream: Upstream) -> Iterator[Gateway]:
    """The module's gateway; whatever a test did to it, its books are right afterwards."""
    yield served
    served.check_books()
