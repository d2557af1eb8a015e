"""Delivers reports: to files, by mail, to webhooks."""

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

# Retries after failures that may be temporary.

WAITS_S = (1.0, 2.0, 4.0)
"""Pauses in seconds between tries, of which there are four in all."""
TIMEOUT_S = 10.0
"""Timeout in seconds of each step of a connection."""


class DeliveryError(Exception):
    """A delivery failed; the message says in one line where to and why, and never contains a secret."""


class TemporaryFailure(Exception):
    """A failure that may be temporary; the message says what it was."""


def retry(step: Callable[[], None], where: str, waits_s: tuple[float, ...] = WAITS_S) -> None:
    """Calls `step`, again after each temporary failure. Raises `DeliveryError` once all tries have failed."""
    for wait_s in (*waits_s, None):
        try:
            return step()
        except TemporaryFailure as failure:
            if wait_s is None:
                raise DeliveryError(f"{where} {failure}, {len(waits_s) + 1} times") from None
        time.sleep(wait_s)


# One report in the chosen format.


class Format(StrEnum):
    """Format of a report, named like the extension of its file."""

    TEXT = "txt"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


def written_as(report: Report, form: Format, table: str = "") -> bytes:
    """Returns the report in that format; `table` names one for CSV. Raises `ClientError` 400 if the report lacks it."""
    if form is Format.CSV:
        return as_csv(report, table)
    if form is Format.JSON:
        return as_json(report) + b"\n"
    return (page(report) if form is Format.HTML else as_text(report)).encode()


def format_of(options: Mapping[str, bool], table: str, out: Path | None) -> Format | None:
    """Returns the format by option, else by the file's extension, else text; None if options contradict each other."""
    stated = [Format(name) for name, given in options.items() if given]
    suffix = "" if out is None else out.suffix.removeprefix(".")
    of_file = Format(suffix) if suffix in set(Format) else Format.TEXT
    form = stated[0] if stated else Format.CSV if table else of_file
    return None if len(stated) > 1 or (table and form is not Format.CSV) else form


# Files that are written completely or not at all.


def write_file(path: Path, content: bytes) -> None:
    """Writes a file, replacing an older one in a single step. Raises `DeliveryError`."""
    try:
        with whole(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise DeliveryError(f"{path} can't be written ({error.strerror})") from None


def _parsed_url(url: str, schemes: Collection[str], wrong: str) -> SplitResult:
    """Returns the parts of a URL; raises `DeliveryError` with the message `wrong` if it is invalid."""
    try:
        parts = urlsplit(url)
        sound = parts.port != 0 and bool(parts.hostname) and parts.scheme in schemes
    except ValueError:
        sound = False
    if not sound:
        raise DeliveryError(wrong)
    return parts


# A report posted as JSON.

_RETRY_STATUSES = {408, 425, 429}
"""Statuses of refusals that invite a retry: https://www.rfc-editor.org/rfc/rfc9110#name-client-error-4xx"""


def post(url: str, body: bytes, token: Secret | None, waits_s: tuple[float, ...] = WAITS_S) -> None:
    """Posts `body` over https, or over http on this machine, without following redirects. Raises `DeliveryError`, which
    names only the host, since the URL may contain a secret."""
    parts = _parsed_url(url, ("http", "https"), "--webhook is no address: give https://HOST/PATH")
    if parts.scheme == "http" and not on_this_machine(parts.hostname or ""):
        raise DeliveryError(f"--webhook would send to {parts.hostname} unencrypted: give https")
    if parts.username is not None:
        raise DeliveryError("--webhook has a user in its address: put the secret into LOWPASS_REPORT_WEBHOOK_TOKEN")
    retry(partial(_post, parts, body, token), f"the webhook at {parts.hostname}", waits_s)


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
        # An untrusted certificate is both an OSError and a ValueError.
        if isinstance(error, InvalidURL) or not isinstance(error, OSError | HTTPException):
            raise DeliveryError("--webhook or its token has characters that HTTP does not allow") from None
        raise TemporaryFailure(f"failed ({type(error).__name__})") from None
    finally:
        connection.close()
    if status >= 500 or status in _RETRY_STATUSES:
        raise TemporaryFailure(f"answered {status}")
    if not 200 <= status < 300:
        raise DeliveryError(f"the webhook at {parts.hostname} answered {status}")


# A report as mail: the table as plain text, the page as HTML, the rows as a CSV file.

_PORTS = {"smtp": 587, "smtps": 465}
"""Ports of mail submission: https://www.rfc-editor.org/rfc/rfc8314"""


def send(
    report: Report, to: Sequence[str], server: Secret | None, sender: str, waits_s: tuple[float, ...] = WAITS_S
) -> None:
    """Mails the report; `server` is LOWPASS_SMTP_URL. Raises `DeliveryError`."""
    remedy = "give smtp://USER:PASSWORD@HOST:PORT, or smtps://"
    if server is None:
        raise DeliveryError(f"--email needs LOWPASS_SMTP_URL: {remedy}")
    parts = _parsed_url(server.reveal(), _PORTS, f"LOWPASS_SMTP_URL is no address: {remedy}")
    user = unquote(parts.username or "")
    mail = EmailMessage()
    mail["Subject"] = heading(report)
    mail["From"] = _mailbox(sender or (user if "@" in user else f"lowpass@{parts.hostname}"))
    mail["To"] = [_mailbox(address) for address in to]
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="lowpass.invalid")
    mail.set_content(as_text(report))
    mail.add_alternative(page(report), subtype="html")
    mail.add_attachment(as_csv(report), maintype="text", subtype="csv", filename=f"{report.name}.csv")
    retry(partial(_send, parts, mail), f"the mail server {parts.hostname}", waits_s)


def _mailbox(address: str) -> Address:
    try:
        return Address(addr_spec=address)
    except (HeaderParseError, MessageDefect, ValueError, IndexError):
        raise DeliveryError(f"'{address[:60]!r}' is no mail address") from None


def _send(parts: SplitResult, mail: EmailMessage) -> None:
    """Sends the mail encrypted, unless the server is on this machine and offers no encryption."""
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
        if code < 500:  # temporary: https://www.rfc-editor.org/rfc/rfc5321#section-4.2.1
            raise TemporaryFailure(f"answered {code}") from None
        raise DeliveryError(f"the mail server {host} answered {code}") from None
    except (OSError, smtplib.SMTPException) as error:
        raise TemporaryFailure(f"failed ({type(error).__name__})") from None


# All deliveries of a report; if one of them fails, a copy is kept on this machine.


def deliver(
    report: Report,
    content: bytes,
    environ: Mapping[str, str],
    home: Path,
    out: Path | None = None,
    webhook: str = "",
    email: Sequence[str] = (),
) -> None:
    """Delivers the report; `content` goes to the file. A failure does not stop the other deliveries. Raises one
    `DeliveryError` for all failures; a copy of the report is then kept in `home`."""

    def secret(name: str) -> Secret | None:
        return Secret(environ[name]) if environ.get(name) else None

    failures, steps = list[str](), list[Callable[[], None]]()
    if out:
        steps.append(partial(write_file, out, content))
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
            write_file(path, as_json(report))  # JSON holds the whole report
            failures.append(f"it is kept in {path}")
        except (OSError, DeliveryError):
            failures.append("nor could it be kept here")
        raise DeliveryError("; ".join(failures))
