"""Where the database is, out of its URL; connections to it. The URL's password is in no message, whatever is wrong."""

from functools import cached_property

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from router.settings import SettingError
from router.types.journal import LedgerUnavailable
from router.types.secret import Secret

SETTING = "LOWPASS_DATABASE_URL"
CONNECT_S = 3
"""How long one try to connect takes at most; the client library knows no less than 2."""
_SCHEMES = ("postgresql://", "postgres://")
_SHAPE = f"{SETTING} is not a URL like postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


class Place:
    """Raises `SettingError` for a URL that is none."""

    def __init__(self, url: Secret) -> None:
        self._url = url
        self._parts = _parts(url.reveal())

    @cached_property
    def name(self) -> str:
        """For people: without user and password."""
        host, port = self._parts.get("host", "localhost"), self._parts.get("port", "5432")
        return f"postgresql://{host}:{port}/{self._parts.get('dbname', '')}"

    def connect(self) -> psycopg.Connection:
        """Blocks for at most `CONNECT_S` a host. Raises `LedgerUnavailable`."""
        ours = {"connect_timeout": str(CONNECT_S), "fallback_application_name": "lowpass"}
        address = make_conninfo("", **{**ours, **self._parts, "client_encoding": "utf8"})
        try:
            return psycopg.Connection.connect(address, autocommit=True)
        except psycopg.Error as error:
            raise LedgerUnavailable(f"{SETTING}: {self.name} can't be reached: {self._reason(error)}") from None

    def _reason(self, error: psycopg.Error) -> str:
        """The client library quotes what it was given: only what stands behind its own words is repeated."""
        last = str(error).strip().splitlines()[0].rpartition("failed: ")[2]
        password = str(self._parts.get("password") or "")
        return last.replace(password, "***") if password else last


def _parts(url: str) -> dict[str, str]:
    """An unescaped @, / or # in a password would be read as part of the host, and so be shown: it is refused."""
    _, _, rest = url.partition("://")
    authority = rest.partition("/")[0].partition("?")[0]
    unclear = rest.count("@") != authority.count("@") or authority.count("@") > 1 or "#" in rest
    if not url.startswith(_SCHEMES) or unclear:
        raise SettingError(f"{_SHAPE}: percent-encode what is special in the password")
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        raise SettingError(_SHAPE) from None
