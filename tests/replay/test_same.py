"""A policy over its own traffic changes nothing, to the nano-dollar."""

from pathlib import Path

from router.ledger.ledger import SqliteLedger
from router.replay import replay
from tests.gateway.running import Gateway
from tests.replay.traffic import config


def test_the_same_policy_changes_nothing(recorded: Gateway, past: SqliteLedger) -> None:
    found = replay(past, config(recorded))
    assert found.total.requests > 0 and found.total.changed == 0
