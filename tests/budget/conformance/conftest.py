"""Every test of this folder that is given a `kind` of store runs once on each."""

import pytest

from tests.budget.conformance.stores import KINDS


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
