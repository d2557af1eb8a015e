"""Every test of this folder that wants a `maker` runs once a store."""

import pytest

from tests.budget.conformance.stores import MAKERS, Maker


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.name)
def maker(request: pytest.FixtureRequest, patient_redis: None) -> Maker:
    found: Maker = request.param
    return found
