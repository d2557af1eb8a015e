"""One gateway under the shipped policy, with its engine, for all tests that only ask."""

from collections.abc import Iterator

import pytest

from router.settings import SHIPPED_POLICY
from tests.gateway.running import Gateway


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("lowpass"), SHIPPED_POLICY.read_text()) as gateway:
        yield gateway
