"""One gateway for all tests that only ask."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.gateway import serving


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("lowpass")
    with serving(home) as url:
        yield url
