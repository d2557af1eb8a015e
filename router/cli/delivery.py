"""Where a report is sent: files, mail, webhooks."""

import os
import smtplib
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from email.errors import HeaderParseError, MessageDefect
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from enum import StrEnum
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection, InvalidURL
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from router.export.focus import whole
from router.report.render import as_csv, as_json, as_text, heading, page
from router.report.report import Report
from router.settings import on_this_machine
from router.types.target import Secret

# Once more after a failure that may pass.

WAITS_S = (1.0, 2.0, 4.0)
"""Between the tries: four in all."""
TIMEOUT_S = 10.0
"""For each step of a connection."""


class DeliveryError(Exception):
    """Says in one line where to, and why not; never a secret."""


class PassingFailure(Exception):
    """May be gone the next time; says what it was."""


def insist(step: Callable[[], None], where: str, waits_s: tuple[float, ...] = WAITS_S) -> None:
    """Raises `DeliveryError`, once `step` has failed each time."""
    for wait_s in (*waits_s, None):
        try:
            return step()
        except PassingFailure as failure:
            if wait_s is None:
                raise DeliveryError(f"{where} {failure}, {len(waits_s) + 1} times") from None
        time.sleep(wait_s)


# One report in the format that was asked for.


class Format(StrEnum):
    """Named as the endings of their files."""

    TEXT = "txt"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


def written_as(report: Report, form: Format, table: str = "") -> bytes:
    """`table` is one of CSV's. Raises a 400 `ClientError` for one that the report lacks."""
    if form is Format.CSV:
        return as_csv(report, table)
    if form is Format.JSON:
        return as_json(report) + b"\n"
    return (page(report) if form is Format.HTML else as_text(report)).encode()


def chosen(options: Mapping[str, bool], table: str, out: Path | None) -> Format | None:
    """By the option, else by the file's ending, else text; None where these contradict each other."""
    named = [Format(name) for name, given in options.items() if given]
    ending = "" if out is None else out.suffix.removeprefix(".")
    of_file = Format(ending) if ending in set(Format) else Format.TEXT
    form = named[0] if named else Format.CSV if table else of_file
    return None if len(named) > 1 or (table and form is not Format.CSV) else form


# Files that are there whole or not at all.


def put(path: Path, content: bytes) -> None:
    """Replaces what was there, in one step. Raises `DeliveryError`."""
    try:
        with whole(path) as beside:
            beside.write_bytes(content)
    except OSError as error:
        raise DeliveryError(f"{path} can't be written ({error.strerror})") from None


def _address(url: str, schemes: Collection[str], wrong: str) -> SplitResult:
    """Raises `DeliveryError`, which says what is `wrong`, for another scheme and what is no address."""
    try:
        parts = urlsplit(url)
        sound = parts.port != 0 and bool(parts.hostname) and parts.scheme in schemes
    except ValueError:
        sound = False
    if not sound:
        raise DeliveryError(wrong)
    return parts


# A report posted as JSON.

_AGAIN = {408, 425, 429}
"""Refusals that ask to come back: https://www.rfc-editor.org/rfc/rfc9110#name-client-error-4xx"""


def post(url: str, body: bytes, token: Secret | None, waits_s: tuple[float, ...] = WAITS_S) -> None:
    """To https, or to http on this machine; no redirect is followed. Raises `DeliveryError`, which names the host only:
    an address may hold a secret."""
    parts = _address(url, ("http", "https"), "--webhook is no address: give https://HOST/PATH")
    if parts.scheme == "http" and not on_this_machine(parts.hostname or ""):
        raise DeliveryError(f"--webhook would send to {parts.hostname} unencrypted: give https")
    if parts.username is not None:
        raise DeliveryError("--webhook has a user in its address: put the secret into LOWPASS_REPORT_WEBHOOK_TOKEN")
    insist(partial(_post, parts, body, token), f"the webhook at {parts.hostname}", waits_s)


def _post(parts: SplitResult, body: bytes, token: Secret | None) -> None:
    headers = {"content-type": "application/json", "user-agent": "lowpass"}
    if token:
        headers["authorization"] = f"Bearer {token.reveal()}"
    https = partial(HTTPSConnection, context=ssl.create_default_context())
    opened = https if parts.scheme == "https" else HTTPConnection
    connection = opened(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
        status = connection.getresponse().status
    except (OSError, HTTPException, ValueError) as error:
        # What TLS does not believe is an OSError and a ValueError.
        if isinstance(error, InvalidURL) or not isinstance(error, OSError | HTTPException):
            raise DeliveryError("--webhook or its token has characters that HTTP does not allow") from None
        raise PassingFailure(f"failed ({type(error).__name__})") from None
    finally:
        connection.close()
    if status >= 500 or status in _AGAIN:
        raise PassingFailure(f"answered {status}")
    if not 200 <= status < 300:
        raise DeliveryError(f"the webhook at {parts.hostname} answered {status}")


# A report as a mail: the table as plain text, the page as HTML, the rows as a CSV file.

_PORTS = {"smtp": 587, "smtps": 465}
"""Submission: https://www.rfc-editor.org/rfc/rfc8314"""


def send(
    report: Report, to: Sequence[str], server: Secret | None, sender: str, waits_s: tuple[float, ...] = WAITS_S
) -> None:
    """`server` is LOWPASS_SMTP_URL. Raises `DeliveryError`."""
    remedy = "give smtp://USER:PASSWORD@HOST:PORT, or smtps://"
    if server is None:
        raise DeliveryError(f"--email needs LOWPASS_SMTP_URL: {remedy}")
    parts = _address(server.reveal(), _PORTS, f"LOWPASS_SMTP_URL is no address: {remedy}")
    user = unquote(parts.username or "")
    mail = EmailMessage()
    mail["Subject"] = heading(report)
    mail["From"] = _mailbox(sender or (user if "@" in user else f"lowpass@{parts.hostname}"))
    mail["To"] = [_mailbox(address) for address in to]
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="lowpass.invalid")
    mail.set_content(as_text(report))
    mail.add_alternative(page(report), subtype="html")
    mail.add_attachment(as_csv(report), maintype="text", subtype="csv", filename=f"{report.name}.csv")
    insist(partial(_send, parts, mail), f"the mail server {parts.hostname}", waits_s)


def _mailbox(address: str) -> Address:
    try:
        return Address(addr_spec=address)
    except (HeaderParseError, MessageDefect, ValueError, IndexError):
        raise DeliveryError(f"'{address[:60]!r}' is no mail address") from None


def _send(parts: SplitResult, mail: EmailMessage) -> None:
    """Encrypted, unless the server is on this machine and has no encryption."""
    context, host = ssl.create_default_context(), parts.hostname or ""
    opened = partial(smtplib.SMTP_SSL, context=context) if parts.scheme == "smtps" else smtplib.SMTP
    try:
        with opened(host, parts.port or _PORTS[parts.scheme], timeout=TIMEOUT_S) as smtp:
            smtp.ehlo()
            if parts.scheme == "smtp" and smtp.has_extn("starttls"):
                smtp.starttls(context=context)
            elif parts.scheme == "smtp" and not on_this_machine(host):
                raise DeliveryError(f"the mail server {host} offers no encryption: use one that does")
            if parts.username is not None:
                smtp.login(unquote(parts.username), unquote(parts.password or ""))
            smtp.send_message(mail)
    except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
        refused = error.recipients if isinstance(error, smtplib.SMTPRecipientsRefused) else {"": (error.smtp_code, b"")}
        code = min(code for code, _ in refused.values())
        if code < 500:  # for now: https://www.rfc-editor.org/rfc/rfc5321#section-4.2.1
            raise PassingFailure(f"answered {code}") from None
        raise DeliveryError(f"the mail server {host} answered {code}") from None
    except (OSError, smtplib.SMTPException) as error:
        raise PassingFailure(f"failed ({type(error).__name__})") from None


# Every delivery that was asked for, and a copy kept here where one of them failed.


def deliver(
    report: Report,
    content: bytes,
    environ: Mapping[str, str],
    home: Path,
    out: Path | None = None,
    webhook: str = "",
    email: Sequence[str] = (),
) -> None:
    """`content` goes to the file. One failure keeps no other delivery back. Raises `DeliveryError` for all of them; the
    copy that is kept then lies in `home`."""

    def secret(name: str) -> Secret | None:
        return Secret(environ[name]) if environ.get(name) else None

    failures, steps = list[str](), list[Callable[[], None]]()
    if out:
        steps.append(partial(put, out, content))
    if webhook:
        steps.append(partial(post, webhook, as_json(report), secret("LOWPASS_REPORT_WEBHOOK_TOKEN")))
    if email:
        steps.append(partial(send, report, email, secret("LOWPASS_SMTP_URL"), environ.get("LOWPASS_SMTP_FROM", "")))
    for step in steps:
        try:
            step()
        except DeliveryError as failure:
            failures.append(str(failure))
    if failures:
        path = home / "reports" / f"{report.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.json"
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            put(path, as_json(report))  # which has all of it
            failures.append(f"it is kept in {path}")
        except (OSError, DeliveryError):
            failures.append("nor could it be kept here")
        raise DeliveryError("; ".join(failures))
