"""Implementation of `lowpass ledger info`, `backup` and `restore`."""

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from router.ledger.ledger import Ledger
from router.ledger.migrate import LedgerTooNew, Table, current, newest, tables
from router.ledger.past import EXPIRED, progress
from router.ledger.rollups import expired
from router.ledger.rows import Connection, insert, transaction
from router.types.account import LedgerUnavailable
from router.types.clock import now_ms
from router.types.tables import patterns

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["backup"]

# Size of the ledger, and the time of its oldest rows.


class Info(Struct, frozen=True, kw_only=True):
    """Statistics of a ledger. Times are Unix ms, or None if there is no such row."""

    ledger: str
    version: int
    rows: dict[str, int]
    requests: int
    """Number of requests, including those whose rows have expired."""
    past: int
    """Number of requests in the compact tables of the past."""
    expired: int
    bytes: int
    oldest_ms: int | None
    """Start of the oldest request that has rows."""
    expired_until_ms: int | None
    """Start time from which all requests have rows; earlier ones may have expired."""

    @property
    def bytes_per_request(self) -> float | None:
        return self.bytes / self.requests if self.requests else None


def info(ledger: Ledger) -> Info:
    """Returns statistics of a ledger. Raises `LedgerUnavailable`."""
    with ledger.reading() as connection:
        version = current(connection, ledger.dialect)
        past, live = connection.execute(_SQL["counts"]).fetchone()
        expired_count = expired(connection)
        return Info(
            ledger=ledger.name,
            version=version,
            rows={table.name: table.count(connection) for table in tables(min(version, newest(ledger.dialect)))},
            requests=past + live + expired_count,
            past=past,
            expired=expired_count,
            bytes=ledger.size(connection),
            oldest_ms=connection.execute(_SQL["oldest"]).fetchone()[0],
            expired_until_ms=progress(connection, EXPIRED) or None,
        )


# A backup is a snapshot of a ledger in one file. It can be restored to either database, and so moves a ledger between
# them. The file is gzip over frames, each of four bytes of length (big-endian) and MessagePack. The first frame is a
# `BackupHead`, the last a `BackupTail`, and each of the others a table's name and some of its rows.

FORMAT = "lowpass ledger 1"
FILLED_AT_START = frozenset({"compatible", "engine_hours", "instance", "policies", "posteriors", "progress"})
"""Tables that have rows before the first request."""
LARGEST_FRAME = 1 << 30
"""Maximum length of a frame in bytes; a file with a longer one is not a backup."""
_LEVEL = 1
"""gzip level; the largest part of a ledger, its documents, is compressed already."""
Progress = Callable[[int], object]
"""Callback that receives the number of rows processed so far."""


class BackupHead(Struct, frozen=True):
    format: str
    version: int
    made_ms: int


class BackupTail(Struct, frozen=True):
    rows: dict[str, int]


class BackupSize(Struct, frozen=True):
    """The contents of a backup: version, number of rows by table, and `size` in bytes."""

    file: str
    version: int
    made_ms: int
    rows: dict[str, int]
    size: int


class BackupBroken(Exception):
    """The file is not a backup, or is incomplete."""


class NotEmpty(Exception):
    """The ledger to restore to already has rows, which are never overwritten."""


_Frame = tuple[str, list[list[Any]]]


def backup(ledger: Ledger, file: Path, progress: Progress = lambda _: None) -> BackupSize:
    """Writes a backup and reads it back; a gateway may go on writing meanwhile. Only the file's owner may read it, as
    it has the hashes of keys. On `FileExistsError`, `OSError` or `LedgerUnavailable`, no new file is left."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "wb") as raw:
            _write(ledger, raw, progress)
            raw.flush()
            os.fsync(raw.fileno())
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # makes the file's name durable
        finally:
            os.close(folder)
        return check(file)
    except BaseException:
        file.unlink()
        raise


def check(file: Path) -> BackupSize:
    """Reads a whole backup and returns its size. Raises `BackupBroken` and `OSError`."""
    counted: Counter[str] = Counter()
    with _open_backup(file) as (head, packed):
        for name, rows in _frames(file, packed):
            counted[name] += len(rows)
    return BackupSize(str(file), head.version, head.made_ms, dict(counted), file.stat().st_size)


def restore(ledger: Ledger, file: Path, progress: Progress = lambda _: None) -> BackupSize:
    """Restores a backup, completely or not at all, to a ledger that is missing or empty, and migrates it.

    Raises `NotEmpty`, `BackupBroken`, `LedgerTooNew`, `OSError` and `LedgerUnavailable`.
    """
    contents = check(file)
    if contents.version > newest(ledger.dialect):
        raise LedgerTooNew(f"{file} is of version {contents.version} of the ledger: install a newer lowpass")
    if version := ledger.version():
        with ledger.reading(any_version=True) as connection:
            _check_empty(ledger.name, connection, tables(version))
    ledger.migrate(contents.version, lose_data=True)
    try:
        with ledger.writing() as connection, transaction(connection, ledger.dialect.begin):
            _load(ledger, connection, file, progress)
    finally:
        ledger.migrate()
    return contents


def _write(ledger: Ledger, raw: BinaryIO, progress: Progress) -> None:
    if ledger.version() == 0:
        raise LedgerUnavailable(f"there is no ledger in {ledger.name} yet: `lowpass serve` makes it")
    counted: Counter[str] = Counter()
    with (
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=_LEVEL, filename="", mtime=0) as packed,
        ledger.reading(any_version=True) as connection,
    ):
        version = current(connection, ledger.dialect)
        if version > newest(ledger.dialect):
            raise LedgerTooNew(f"{ledger.name} has version {version}: a newer lowpass knows all of it, and backs it up")
        _write_frame(packed, BackupHead(FORMAT, version, now_ms()))
        for table in tables(version):
            for rows in table.pages(connection):
                _write_frame(packed, (table.name, [list(row) for row in rows]))
                counted[table.name] += len(rows)
                progress(counted.total())
        _write_frame(packed, BackupTail(dict(counted)))


def _write_frame(packed: gzip.GzipFile, content: BackupHead | BackupTail | _Frame) -> None:
    data = msgspec.msgpack.encode(content)
    packed.write(len(data).to_bytes(4, "big") + data)


@contextmanager
def _open_backup(file: Path) -> Iterator[tuple[BackupHead, gzip.GzipFile]]:
    """Opens a backup and reads its head. Raises `BackupBroken` if that, or anything read later, is damaged."""
    try:
        with gzip.open(file, "rb") as packed:
            head = msgspec.msgpack.decode(_read_frame(packed), type=BackupHead)
            if head.format != FORMAT:
                raise BackupBroken(f"{file} is no backup that this lowpass can read")
            yield head, packed
    except (EOFError, gzip.BadGzipFile, zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupBroken(f"{file} is no backup of a ledger, or not all of one ({type(error).__name__})") from None


def _frames(file: Path, packed: gzip.GzipFile) -> Iterator[_Frame]:
    """Yields the frames of rows. Raises `BackupBroken` if a table has not as many rows as the tail states."""
    counted: Counter[str] = Counter()
    while isinstance(frame := msgspec.msgpack.decode(_read_frame(packed), type=_Frame | BackupTail), tuple):
        counted[frame[0]] += len(frame[1])
        yield frame
    if frame.rows != counted or packed.read(1):
        raise BackupBroken(f"{file} has not the rows that it says it has")


def _read_frame(packed: gzip.GzipFile) -> bytes:
    size = packed.read(4)
    length = int.from_bytes(size, "big")
    data = packed.read(length) if len(size) == 4 and length <= LARGEST_FRAME else b""
    if len(data) < max(length, 1):
        raise EOFError
    return data


def _check_empty(name: str, connection: Connection, known: Sequence[Table]) -> None:
    for table in known:
        if table.name not in FILLED_AT_START and (count := table.count(connection)):
            raise NotEmpty(
                f"{name} is not empty ({table.name}: {count:,}), and nothing is written over it: move it aside,"
                " or name another LOWPASS_HOME or LOWPASS_DATABASE_URL"
            )


def _load(ledger: Ledger, connection: Connection, file: Path, progress: Progress) -> None:
    count, deferred = 0, list[_Frame]()
    with _open_backup(file) as (head, packed):
        known = {table.name: table for table in tables(head.version)}
        _check_empty(ledger.name, connection, tuple(known.values()))
        for name in FILLED_AT_START & known.keys():
            connection.execute(f"DELETE FROM {name}")  # noqa: S608 - a name of ours
        for name, rows in _frames(file, packed):
            if name not in known:
                raise BackupBroken(f"{file} has a table that version {head.version} of the ledger has not")
            if name in _LOADED_LAST:
                deferred.append((name, rows))
            else:
                _insert(ledger, connection, known[name], rows)
            count += len(rows)
            progress(count)
    for name, rows in sorted(deferred, key=lambda frame: _LOADED_LAST.index(frame[0])):
        _insert(ledger, connection, known[name], rows)
    if "outcomes" in known and ledger.dialect.recount:
        connection.execute(ledger.dialect.recount)


_LOADED_LAST = ("children", "budget_windows")
"""Tables loaded last: by then, triggers have summed the bookings, without updating children, which did not exist."""


def _insert(ledger: Ledger, connection: Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    """Inserts rows of a backup; rows of `budget_windows` that triggers have made already are left as they are."""
    then = "ON CONFLICT DO NOTHING" if table.name == "budget_windows" else ""
    insert(connection, table.name, table.columns, rows, ledger.dialect.given, then)
