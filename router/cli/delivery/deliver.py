"""Every delivery that was asked for, and a copy kept here where one of them failed."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from router.cli.delivery.files import put
from router.cli.delivery.formats import Format, written_as
from router.cli.delivery.mail import send
from router.cli.delivery.tries import Undelivered
from router.cli.delivery.webhook import post
from router.report.render import as_json
from router.report.report import Report
from router.types.secret import Secret


class Wanted(Struct, frozen=True, kw_only=True):
    """Where a report is to go; `table` is one of CSV's."""

    form: Format
    table: str = ""
    out: Path | None = None
    webhook: str = ""
    email: Sequence[str] = ()

    @property
    def anywhere(self) -> bool:
        return bool(self.out or self.webhook or self.email)


def deliver(report: Report, wanted: Wanted, environ: Mapping[str, str], home: Path) -> None:
    """One failure keeps no other delivery back. Raises `Undelivered` for all of them, and `ClientError` (see
    `written_as`). The copy that is kept then lies in `home`."""
    failures: list[str] = []
    for step in _steps(report, wanted, environ):
        try:
            step()
        except Undelivered as failure:
            failures.append(str(failure))
    if failures:
        raise Undelivered("; ".join((*failures, _kept(report, home))))


def _steps(report: Report, wanted: Wanted, environ: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    out, webhook, email = wanted.out, wanted.webhook, wanted.email
    if out:
        content = written_as(report, wanted.form, wanted.table)
        yield lambda: put(out, content)
    if webhook:
        yield lambda: post(webhook, as_json(report), _secret(environ, "LOWPASS_REPORT_WEBHOOK_TOKEN"))
    if email:
        server, sender = _secret(environ, "LOWPASS_SMTP_URL"), environ.get("LOWPASS_SMTP_FROM", "")
        yield lambda: send(report, email, server, sender)


def _secret(environ: Mapping[str, str], name: str) -> Secret | None:
    return Secret(environ[name]) if environ.get(name) else None


def _kept(report: Report, home: Path) -> str:
    """As JSON, which has all of it."""
    path = home / "reports" / f"{report.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.json"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        put(path, as_json(report))
    except (OSError, Undelivered):
        return "nor could it be kept here"
    return f"it is kept in {path}"
