"""Statements that may meet either database are understood by PostgreSQL; SQLite meets them in all other tests."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest
from psycopg.pq import ExecStatus

import router.budget
import router.ledger
import router.report
from router.ledger.postgres.place import Place
from router.ledger.postgres.wire import numbered
from router.types.secret import Secret
from tests.postgres import Server

LOCAL = {"journal", "migrate", "postgres", "schema", "sqlite"}
"""Modules and packages that speak to one database only."""
WORKBENCH = "router.ledger.packed.facts"
"""So does this module, to one in memory."""
PARTS = {"router.ledger.facts.passes._NEWER"}
"""Of statements, and none themselves."""
VERBS = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ")


def statements() -> Iterator[tuple[str, str]]:
    """Module-level texts, with the place that they are named by; where they have gaps, with something in them."""
    for package in (router.budget, router.ledger, router.report):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not LOCAL & set(found.name.split(".")) and found.name != WORKBENCH:
                for name, value in vars(import_module(found.name)).items():
                    place = f"{found.name}.{name}"
                    if isinstance(value, str) and value.lstrip().startswith(VERBS) and place not in PARTS:
                        yield place, value.replace("({})", "(?)").replace("{}", "=")


@pytest.mark.parametrize(("place", "statement"), [pytest.param(*found, id=found[0]) for found in statements()])
def test_postgres_understands(place: str, statement: str, postgres: Server, shared: list[str]) -> None:
    if not shared:
        shared.append(postgres.database())
    with Place(Secret(shared[0])).connect() as connection:
        answer = connection.pgconn.prepare(b"", numbered(statement)[0])
        assert answer.status == ExecStatus.COMMAND_OK, answer.error_message.decode()


@pytest.fixture(scope="module")
def shared() -> list[str]:
    """The URL of one database for all statements."""
    return []
