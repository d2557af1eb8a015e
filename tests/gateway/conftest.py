"""One gateway a module, under the module's own `policy(url)`, for the upstream that its `server()` makes."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from router.testing.upstream import Upstream
from tests.gateway.running import Gateway, serving
from tests.stores import postgres

__all__ = ["gateway", "postgres", "served"]


@pytest.fixture(scope="module")
def upstream_server(request: pytest.FixtureRequest, upstream_server: Upstream) -> Iterator[Upstream]:
    """Without a `server()`: the scripted upstream of all tests."""
    make = getattr(request.module, "server", lambda: nullcontext(upstream_server))
    with make() as server:
        yield server


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
