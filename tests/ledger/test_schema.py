"""Both places have the same tables: what one knows of a request, the other knows too."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.migrate import POSTGRES, SQLITE, newest
from router.ledger.postgres.ledger import PostgresLedger
from router.types.secret import Secret
from tests.ledger.books import found
from tests.postgres import Server

KINDS = {
    **{"BIGINT": "integer", "INTEGER": "integer", "TEXT": "text", "REAL": "float", "DOUBLE PRECISION": "float"},
    **{"BLOB": "bytes", "BYTEA": "bytes"},
}
_SQLITE = (
    'SELECT m.name AS "table", c.name AS "column", upper(c.type) AS kind, c."notnull" AS required, c.dflt_value AS def,'
    " c.pk > 0 AS keyed FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
)
_POSTGRES = """
    SELECT c.table_name AS "table", c.column_name AS "column", upper(c.data_type) AS kind,
        CASE WHEN c.is_nullable = 'NO' THEN 1 ELSE 0 END AS required,
        replace(c.column_default, '::text', '') AS def,
        CASE WHEN k.column_name IS NULL THEN 0 ELSE 1 END AS keyed
    FROM information_schema.columns c LEFT JOIN (
        SELECT table_name, column_name FROM information_schema.key_column_usage
        JOIN information_schema.table_constraints USING (constraint_name, table_name)
        WHERE constraint_type = 'PRIMARY KEY'
    ) k USING (table_name, column_name)
    WHERE c.table_schema = 'public' AND c.table_name <> 'schema_version'
"""
Column = tuple[str, bool, object, bool]


def columns(ledger: Ledger, query: str) -> dict[tuple[str, str], Column]:
    """(table, column) → what it holds, whether it must be there, its default, whether it is part of the key."""
    return {
        (row["table"], row["column"]): (
            KINDS[row["kind"]],
            bool(row["required"] or row["keyed"]),
            row["def"],
            bool(row["keyed"]),
        )
        for row in found(ledger, query)
    }


def test_both_have_the_same_tables_and_columns(new_sqlite: SqliteLedger, postgres: Server) -> None:
    there = columns(PostgresLedger(Secret(postgres.database())), _POSTGRES)
    here = columns(new_sqlite, _SQLITE)
    assert {"requests", "attempts", "decisions", "keys", "outcomes"} <= {table for table, _ in here}
    assert there == here


def test_both_have_the_same_versions() -> None:
    assert newest(SQLITE) == newest(POSTGRES)


def test_gateways_that_start_at_once_make_the_tables_once(postgres: Server) -> None:
    url = postgres.empty()
    with ThreadPoolExecutor(8) as crowd:
        versions = list(crowd.map(lambda _: PostgresLedger(Secret(url)).migrate(), range(8)))
    assert set(versions) == {newest(POSTGRES)}
    assert found(PostgresLedger(Secret(url)), "SELECT version FROM schema_version") == [{"version": newest(POSTGRES)}]


def test_a_role_that_may_not_create_tables_can_use_those_that_are_there(postgres: Server) -> None:
    if not postgres.mine:
        pytest.skip("the server of LOWPASS_TEST_DATABASE_URL has roles of its own")
    url = postgres.database()
    ledger = PostgresLedger(Secret(url))
    with ledger.writing() as admin:
        role = f"writer_{url.rpartition('_')[2]}"
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'other'")
        admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        admin.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {role}")
    narrow = PostgresLedger(Secret(url.replace("lowpass:secret@", f"{role}:other@")))
    assert narrow.migrate() == newest(POSTGRES)
    assert narrow.exists()
