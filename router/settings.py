"""Process settings from the environment. Everything about routing is in the policy file."""

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from math import inf
from pathlib import Path

from msgspec import Struct

from router.types.target import Secret

_log = logging.getLogger("lowpass")

SHIPPED_POLICY = Path(__file__).parents[1] / "policies" / "default.yaml"
NAMES = frozenset(
    {
        *("LOWPASS_HOME", "LOWPASS_HOST", "LOWPASS_KEEP_ROWS_DAYS", "LOWPASS_LOG", "LOWPASS_PORT", "LOWPASS_WORKERS"),
        *("LOWPASS_POLICY", "LOWPASS_DATABASE_URL", "LOWPASS_REDIS_URL", "LOWPASS_REPORT_WEBHOOK_TOKEN"),
        *("LOWPASS_SMTP_FROM", "LOWPASS_SMTP_URL", "LOWPASS_VLLM_PYTHON"),
    }
)
LOGS = ("text", "json")
MOST_WORKERS = 64
"""Maximum number of workers: more than most machines have cores. Each needs about 100 MB."""


class Settings(Struct, frozen=True):
    """Settings from the variables in `NAMES`; options of `lowpass serve` override them. URLs may contain passwords."""

    home: Path
    host: str
    port: int
    policy: Path
    database_url: Secret | None = None
    """Database of the ledger; None for the SQLite file `sqlite`."""
    redis_url: Secret | None = None
    """Redis server of the budgets; None for the SQLite file `sqlite`."""
    workers: int = 1
    """Number of serving processes, including the first."""
    keep_rows_days: int | None = None
    """Days that whole rows of requests are kept; None for ever. Hourly roll-ups stay."""
    vllm_python: str = ""
    """Python interpreter of the environment with vLLM, for engines whose specs name none."""
    json_log: bool = False
    """Whether logs are JSON, with one line per request. Otherwise they are text, without lines for requests."""

    @property
    def keep_rows_ms(self) -> int | None:
        return None if self.keep_rows_days is None else self.keep_rows_days * 86_400_000

    @property
    def sqlite(self) -> Path:
        return self.home / "lowpass.db"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def engines(self) -> Path:
        """Folder for the state of running engines, and for what they keep on disk."""
        return self.home / "engines"

    @property
    def loopback(self) -> bool:
        return on_this_machine(self.host)


def on_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class SettingError(Exception):
    """A setting is wrong. Says which one and what to do."""


def read(
    environ: Mapping[str, str],
    *,
    policy: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    workers: str | None = None,
) -> Settings:
    """Reads the settings and creates the home folder. Raises `SettingError`."""
    home = Path(environ.get("LOWPASS_HOME") or "~/.lowpass").expanduser()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"LOWPASS_HOME={home} can't be made ({error.strerror}): name a folder you may write"
        ) from None
    if home.stat().st_mode & 0o007:
        _log.warning("every user of this machine may look into LOWPASS_HOME=%s: chmod 700 it", home)
    processes = workers if workers is not None else environ.get("LOWPASS_WORKERS") or "1"
    sent_port, days = environ.get("LOWPASS_PORT") or "4100", environ.get("LOWPASS_KEEP_ROWS_DAYS")
    at_most = f"a number of workers: give --workers or LOWPASS_WORKERS a number from 1 to {MOST_WORKERS}"
    whole = "a number of days: give 1 or more, or leave it out"
    if (logs := environ.get("LOWPASS_LOG") or "text") not in LOGS:
        raise SettingError(f"LOWPASS_LOG={logs} is no form of logs: say {' or '.join(LOGS)}")
    in_range = "a port: give a number from 0 to 65535"
    return Settings(
        home=home,
        host=host or environ.get("LOWPASS_HOST") or "127.0.0.1",
        port=port if port is not None else _number(sent_port, 0, 65_535, in_range, "LOWPASS_PORT="),
        policy=policy or Path(environ.get("LOWPASS_POLICY") or SHIPPED_POLICY),
        database_url=_secret(environ, "LOWPASS_DATABASE_URL"),
        redis_url=_secret(environ, "LOWPASS_REDIS_URL"),
        workers=_number(processes, 1, MOST_WORKERS, at_most),
        keep_rows_days=_number(days, 1, inf, whole, "LOWPASS_KEEP_ROWS_DAYS=") if days else None,
        vllm_python=environ.get("LOWPASS_VLLM_PYTHON") or "",
        json_log=logs == LOGS[1],
    )


def unread(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns variables that look like settings but are unknown: misspelt, or of another version."""
    return tuple(sorted(name for name in environ if name.startswith("LOWPASS_") and name not in NAMES))


def _secret(environ: Mapping[str, str], name: str) -> Secret | None:
    return Secret(environ[name]) if environ.get(name) else None


def _number(text: str, least: int, most: float, wrong: str, name: str = "") -> int:
    """Parses a number. `wrong` says what it is not, and what to give."""
    if not text.isdecimal() or not least <= int(text) <= most:
        raise SettingError(f"{name}{text} is not {wrong}")
    return int(text)
