"""SQL and values as PostgreSQL takes them, and addresses that keep their password to themselves."""

import socket
import traceback

import pytest

from router.ledger.ledger import ledger_at
from router.ledger.postgres.ledger import PostgresLedger
from router.ledger.postgres.queue import repeatable
from router.ledger.postgres.wire import StatementRefused, encoded, numbered
from router.settings import SettingError
from router.types.journal import LedgerUnavailable
from router.types.secret import Secret
from tests.ledger.books import found
from tests.postgres import Server

CANARY = "s3cr3t-c4n4ry"


@pytest.mark.parametrize(
    ("statement", "expected", "names"),
    [
        ("SELECT ?, ?", "SELECT $1, $2", ()),
        ("a = :x AND b < :y AND c > :x", "a = $1 AND b < $2 AND c > $1", ("x", "y")),
        ("a = '?' AND b = ':x' AND c = ?", "a = '?' AND b = ':x' AND c = $1", ()),
        ("a = 'it''s ?' AND b = ?", "a = 'it''s ?' AND b = $1", ()),
        ("CAST(a AS TEXT), b::bigint, ?", "CAST(a AS TEXT), b::bigint, $1", ()),
        ("a LIKE '%' AND b % 2 = ?", "a LIKE '%' AND b % 2 = $1", ()),
    ],
)
def test_placeholders(statement: str, expected: str, names: tuple[str, ...]) -> None:
    assert numbered(statement) == (expected.encode(), names)


def test_values() -> None:
    assert encoded((1, -(2**63), 0.1, 1e300, None, "é", "", "a\0b")) == [
        *(b"1", b"-9223372036854775808", b"0.1", b"1e+300", None, "é".encode(), b"", "a\ufffdb".encode())
    ]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO a VALUES (?)", "INSERT INTO a VALUES (?) ON CONFLICT DO NOTHING"),
        ("INSERT INTO a VALUES (?) ON CONFLICT (b) DO UPDATE SET c = 1", None),
        ("UPDATE a SET b = ?", None),
    ],
)
def test_what_is_written_again_writes_nothing_twice(statement: str, expected: str | None) -> None:
    assert repeatable((statement, [b"1"])) == (expected or statement, [b"1"])


def test_a_mistake_in_a_statement_says_where_and_no_value(postgres: Server) -> None:
    ledger = PostgresLedger(Secret(postgres.database()))
    with ledger.writing() as connection:
        connection.execute("INSERT INTO decisions VALUES (?, 0, 'p', '{}')", (CANARY,))
        with pytest.raises(StatementRefused, match=r"UniqueViolation.*decisions_pkey") as caught:
            connection.execute("INSERT INTO decisions VALUES (?, 0, 'p', '{}')", (CANARY,))
        assert CANARY not in "".join(traceback.format_exception(caught.value))
        with pytest.raises(StatementRefused) as caught:
            connection.execute("SELECT started_ms FROM requests WHERE started_ms = ?", (CANARY,))
        assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_reader_sees_the_ledger_as_of_one_moment(postgres: Server) -> None:
    ledger = PostgresLedger(Secret(postgres.database()))
    count = "SELECT COUNT(*) FROM decisions"
    with ledger.reading() as reader, ledger.writing() as writer:
        reader.execute("BEGIN")
        assert reader.execute(count).fetchone() == (0,)
        writer.execute("INSERT INTO decisions VALUES ('d', 0, 'p', '{}')")
        assert reader.execute(count).fetchone() == (0,)
    with ledger.reading() as later:
        assert later.execute(count).fetchone() == (1,)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:{}@host/db",
        "postgresql:u:{}@host/db",
        "{}",
        "postgresql://u:{}@more@host/db",
        "postgresql://u:more/{}@host/db",
        "postgresql://u:more?{}@host/db",
        "postgresql://u:more#{}@host/db",
        "postgresql://u:%zz{}@host/db",
        "postgresql://u:{}@host:port/db",
        "postgresql://u@host/db?pasword={}",
    ],
)
def test_a_url_that_is_none_is_told_without_its_password(url: str) -> None:
    with pytest.raises((SettingError, LedgerUnavailable)) as caught:
        ledger_at(__file__, Secret(url.format(CANARY))).migrate()  # type: ignore[arg-type]
    assert "LOWPASS_DATABASE_URL" in str(caught.value)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ledger = PostgresLedger(Secret(f"postgresql://me:{CANARY}@127.0.0.1:{port}/books"))
    assert ledger.name == f"postgresql://127.0.0.1:{port}/books"
    with pytest.raises(
        LedgerUnavailable, match=f"127.0.0.1:{port}/books can't be reached: Connection refused"
    ) as caught:
        ledger.migrate()
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_wrong_password_is_told_and_not_shown(postgres: Server) -> None:
    if not postgres.mine:
        pytest.skip("the server of LOWPASS_TEST_DATABASE_URL has roles of its own")
    url = postgres.database()
    ledger = PostgresLedger(Secret(url.replace("lowpass:secret@", f"lowpass:{CANARY}@")))
    with pytest.raises(LedgerUnavailable, match="password authentication failed") as caught:
        ledger.exists()
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_password_may_have_any_character_once_it_is_encoded(postgres: Server) -> None:
    if not postgres.mine:
        pytest.skip("the server of LOWPASS_TEST_DATABASE_URL has roles of its own")
    url = postgres.database()
    role = f"odd_{url.rpartition('_')[2]}"
    with PostgresLedger(Secret(url)).writing() as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'a@/:#?%'")
        admin.execute(f"GRANT SELECT ON schema_version TO {role}")
    odd = PostgresLedger(Secret(url.replace("lowpass:secret@", f"{role}:a%40%2F%3A%23%3F%25@")))
    assert odd.exists()
    assert found(odd, "SELECT current_user AS me") == [{"me": role}]
