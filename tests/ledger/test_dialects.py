"""Two databases, one ledger: the same tables, statements and values as PostgreSQL takes them, addresses and roles."""

import ast
import inspect
import pkgutil
import socket
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module

import pytest
from psycopg.pq import ExecStatus

import router.budget
import router.ledger
import router.report
from router.ledger.ledger import Ledger, SqliteLedger, ledger_at
from router.ledger.migrate import POSTGRES, SQLITE, newest
from router.ledger.postgres import PostgresLedger, ServerAddress, StatementRefused, numbered
from router.ledger.verify import rules
from router.settings import SettingError
from router.types.account import LedgerUnavailable
from router.types.tables import patterns
from router.types.target import Secret
from tests.ledger.books import found
from tests.postgres import Server
from tests.tables import data, each_row

CANARY = "s3cr3t-c4n4ry"
KINDS = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA"}
_COLUMNS = data(__file__, "columns.yaml")
Column = tuple[str, bool, object, bool]
LOCAL = {"journal", "migrate", "postgres", "sqlite"}
"""Modules and packages that speak to one database only."""
PARTS = {"sums", "requests_where", "newest", "offers_live", "offers_past", "since", "add"}
PARTS |= {"bookings", "booking", "unmoved"}
"""Of statements, and none themselves."""
VERBS = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ")


def at(url: str) -> PostgresLedger:
    return PostgresLedger(Secret(url))


@contextmanager
def secretly(error: type[Exception] | tuple[type[Exception], ...], match: str | None = None) -> Iterator[None]:
    """It is raised, and its traceback does not show the canary."""
    with pytest.raises(error, match=match) as caught:
        yield
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def columns(ledger: Ledger, query: str) -> dict[tuple[str, str], Column]:
    """(table, column) → what it holds, whether it must be there, its default, whether it is part of the key."""
    kept = {}
    for row in found(ledger, query):
        needed, keyed = bool(row["required"] or row["keyed"]), bool(row["keyed"])
        kept[row["table"], row["column"]] = (KINDS.get(row["kind"], row["kind"]), needed, row["def"], keyed)
    return kept


def test_both_have_the_same_versions_tables_and_columns(new_sqlite: SqliteLedger, database: str) -> None:
    there, here = columns(at(database), _COLUMNS["postgres"]), columns(new_sqlite, _COLUMNS["sqlite"])
    assert {"live_requests", "past_requests", "keys", "outcomes"} <= {table for table, _ in here}
    assert there == here
    assert newest(SQLITE) == newest(POSTGRES)


@pytest.fixture(scope="module")
def database(postgres: Server) -> str:
    """The URL of one with the tables, empty before and after each test."""
    return postgres.database()


def test_gateways_that_start_at_once_make_the_tables_once(postgres: Server) -> None:
    url = postgres.empty()
    with ThreadPoolExecutor(8) as crowd:
        versions = set(crowd.map(lambda _: at(url).migrate(), range(8)))
    assert versions == {newest(POSTGRES)}
    assert found(at(url), "SELECT version FROM schema_version") == [{"version": newest(POSTGRES)}]


def statements() -> Iterator[tuple[str, str]]:
    """By their place in the modules; where they have gaps, with something in them."""
    for part in ("rows", "belonging", "outcomes", "budgets", "moved"):
        yield from ((f"{part} {rule.table}", rule.sql) for rule in rules(part))
    parts = [patterns("budget/data/redis.yaml"), *patterns("ledger/data/sql.yaml").values()]
    for name, value in (item for part in parts for item in part.items() if item[0] not in PARTS):
        yield name, value.replace("({})", "(?)").replace("{}", "=")
    for package in (router.budget, router.ledger, router.report):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not LOCAL & set(module.name.split(".")):
                for name, value in vars(import_module(module.name)).items():
                    place = f"{module.name}.{name}".removeprefix("router.ledger.")
                    if isinstance(value, str) and value.lstrip().startswith(VERBS) and place not in PARTS:
                        yield place, value.replace("({})", "(?)").replace("{}", "=")
                yield from used_in_functions(module.name)


def used_in_functions(module: str) -> Iterator[tuple[str, str]]:
    """Whole statements that stand where they are executed."""
    for call in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        for node in call.args[:1] if isinstance(call, ast.Call) else ():
            if isinstance(node, ast.Constant) and str(node.value).startswith(VERBS):
                yield f"{module}:{node.lineno}", str(node.value)


@each_row("place, statement", statements(), ids=[place for place, _ in statements()])
def test_postgres_understands(place: str, statement: str, database: str) -> None:
    with ServerAddress(Secret(database)).connect() as connection:
        answer = connection.pgconn.prepare(b"", numbered(statement)[0])
        assert answer.status == ExecStatus.COMMAND_OK, answer.error_message.decode()


@each_row("statement, expected, names", data(__file__, "placeholders.yaml"))
def test_placeholders(statement: str, expected: str, names: list[str]) -> None:
    assert numbered(statement) == (expected.encode(), tuple(names))


def test_a_mistake_in_a_statement_says_where_and_no_value(postgres: Server) -> None:
    insert = "INSERT INTO live_decisions VALUES (?, 0, 'p', '{}')"
    with at(postgres.database()).writing() as connection:
        connection.execute(insert, (CANARY,))
        with secretly(StatementRefused, r"UniqueViolation.*decisions_pkey"):
            connection.execute(insert, (CANARY,))
        with secretly(StatementRefused):
            connection.execute("SELECT started_ms FROM requests WHERE started_ms = ?", (CANARY,))


def test_a_reader_sees_the_ledger_as_of_one_moment(ledger: Ledger) -> None:
    count = "SELECT COUNT(*) FROM decisions"
    with ledger.reading() as reader, ledger.writing() as writer:
        assert reader.execute(count).fetchone() == (0,)
        writer.execute("INSERT INTO live_decisions VALUES ('d', 0, 'p', '{}')")
        assert reader.execute(count).fetchone() == (0,)
    with ledger.reading() as later:
        assert later.execute(count).fetchone() == (1,)


URLS = ["mysql://u:{}@host/db", "postgresql:u:{}@host/db", "{}", "postgresql://u:{}@more@host/db"]
URLS += ["postgresql://u:more/{}@host/db", "postgresql://u:more?{}@host/db", "postgresql://u:more#{}@host/db"]
URLS += ["postgresql://u:%zz{}@host/db", "postgresql://u:{}@host:port/db", "postgresql://u@host/db?pasword={}"]


@each_row("url", URLS)
def test_a_url_that_is_none_is_told_without_its_password(url: str) -> None:
    with secretly((SettingError, LedgerUnavailable), "LOWPASS_DATABASE_URL"):
        ledger_at(__file__, Secret(url.format(CANARY))).migrate()  # type: ignore[arg-type]


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}/books"
    ledger = at(f"postgresql://me:{CANARY}@{place}")
    assert ledger.name == f"postgresql://{place}"
    with secretly(LedgerUnavailable, f"{place} can't be reached: Connection refused"):
        ledger.migrate()


def with_role(url: str, name: str, password: str, encoded: str, *grants: str) -> PostgresLedger:
    """The ledger as a new role sees it."""
    role = f"{name}_{url.rpartition('_')[2]}"
    with at(url).writing() as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
        for grant in grants:
            admin.execute(grant.format(role))
    return at(url.replace("lowpass:secret@", f"{role}:{encoded}@"))


def test_roles_and_passwords(postgres: Server) -> None:
    if not postgres.mine:
        pytest.skip("the server of LOWPASS_TEST_DATABASE_URL has roles of its own")
    url = postgres.database()
    odd = with_role(url, "odd", "a@/:#?%", "a%40%2F%3A%23%3F%25", "GRANT SELECT ON schema_version TO {}")
    assert odd.exists()
    assert found(odd, "SELECT current_user LIKE 'odd_%' AS new") == [{"new": 1}]
    # A role that may not create tables can use those that are there.
    grant = "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {}"
    narrow = with_role(url, "writer", "other", "other", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", grant)
    assert (narrow.migrate(), narrow.exists()) == (newest(POSTGRES), True)
    # A wrong password is told and not shown.
    with secretly(LedgerUnavailable, "password authentication failed"):
        at(url.replace("lowpass:secret@", f"lowpass:{CANARY}@")).exists()
