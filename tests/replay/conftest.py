"""One ledger for all: recorded once by a gateway that has ended since."""

from collections.abc import Iterator

import pytest

from router.ledger.ledger import SqliteLedger
from tests.gateway.running import Gateway, serving, until
from tests.gateway.school import Pupil, able, schooling, weak
from tests.replay.traffic import policy, record
from tests.stores import ledger, new_ledger, postgres

__all__ = ["ledger", "new_ledger", "past", "postgres", "recorded"]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Its ledger holds everything, and nothing is held."""
    with schooling(cheap=Pupil(weak), dear=Pupil(able), home=Pupil(weak), broken=Pupil(able, status=500)) as school:
        with serving(tmp_path_factory.mktemp("replay"), policy(school.url)) as gateway:
            record(gateway)
            until(lambda: not gateway.rows("SELECT id FROM requests WHERE state = 'held'"))
        yield gateway


@pytest.fixture
def past(recorded: Gateway) -> SqliteLedger:
    return SqliteLedger(recorded.ledger)
