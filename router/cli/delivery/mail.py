"""A report as a mail: the table as plain text, the page as HTML, the rows as a CSV file."""

import smtplib
import ssl
from collections.abc import Sequence
from email.errors import HeaderParseError, MessageDefect
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from functools import partial
from urllib.parse import SplitResult, unquote, urlsplit

from router.cli.delivery.tries import TIMEOUT_S, WAITS_S, Passing, Undelivered, insist
from router.cli.delivery.webhook import on_this_machine
from router.report.csv_ import as_csv
from router.report.html import page
from router.report.render import heading
from router.report.report import Report
from router.report.table import as_text
from router.types.secret import Secret

_PORTS = {"smtp": 587, "smtps": 465}
"""Submission: https://www.rfc-editor.org/rfc/rfc8314"""


def send(
    report: Report, to: Sequence[str], server: Secret | None, sender: str, waits_s: tuple[float, ...] = WAITS_S
) -> None:
    """`server` is LOWPASS_SMTP_URL. Raises `Undelivered`."""
    parts = _address(server)
    mail = message(report, to, sender or _sender(parts))
    insist(partial(_send, parts, mail), f"the mail server {parts.hostname}", waits_s)


def message(report: Report, to: Sequence[str], sender: str) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = heading(report)
    mail["From"], mail["To"] = _mailbox(sender), [_mailbox(one) for one in to]
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="lowpass.invalid")
    mail.set_content(as_text(report))
    mail.add_alternative(page(report), subtype="html")
    mail.add_attachment(as_csv(report), maintype="text", subtype="csv", filename=f"{report.name}.csv")
    return mail


def _mailbox(address: str) -> Address:
    try:
        return Address(addr_spec=address)
    except (HeaderParseError, MessageDefect, ValueError, IndexError):
        raise Undelivered(f"'{address[:60]!r}' is no mail address") from None


def _address(server: Secret | None) -> SplitResult:
    remedy = "give smtp://USER:PASSWORD@HOST:PORT, or smtps://"
    if server is None:
        raise Undelivered(f"--email needs LOWPASS_SMTP_URL: {remedy}")
    try:
        parts = urlsplit(server.reveal())
        named = parts.port != 0 and bool(parts.hostname)
    except ValueError:
        named = False
    if not named or parts.scheme not in _PORTS:
        raise Undelivered(f"LOWPASS_SMTP_URL is no address: {remedy}")
    return parts


def _sender(parts: SplitResult) -> str:
    user = unquote(parts.username or "")
    return user if "@" in user else f"lowpass@{parts.hostname}"


def _send(parts: SplitResult, mail: EmailMessage) -> None:
    context = ssl.create_default_context()
    try:
        with _opened(parts, context) as smtp:
            _enter(smtp, parts, context)
            smtp.send_message(mail)
    except smtplib.SMTPResponseException as error:
        raise _refused(parts, error.smtp_code) from None
    except smtplib.SMTPRecipientsRefused as error:
        raise _refused(parts, min(code for code, _ in error.recipients.values())) from None
    except (OSError, smtplib.SMTPException) as error:
        raise Passing(f"failed ({type(error).__name__})") from None


def _refused(parts: SplitResult, code: int) -> Exception:
    """400s are for now: https://www.rfc-editor.org/rfc/rfc5321#section-4.2.1"""
    if code < 500:
        return Passing(f"answered {code}")
    return Undelivered(f"the mail server {parts.hostname} answered {code}")


def _opened(parts: SplitResult, context: ssl.SSLContext) -> smtplib.SMTP:
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    if parts.scheme == "smtps":
        return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_S, context=context)
    return smtplib.SMTP(host, port, timeout=TIMEOUT_S)


def _enter(smtp: smtplib.SMTP, parts: SplitResult, context: ssl.SSLContext) -> None:
    """Encrypted, unless the server is on this machine and has no encryption."""
    host = parts.hostname or ""
    smtp.ehlo()
    if parts.scheme == "smtp" and smtp.has_extn("starttls"):
        smtp.starttls(context=context)
    elif parts.scheme == "smtp" and not on_this_machine(host):
        raise Undelivered(f"the mail server {host} offers no encryption: use one that does")
    if parts.username is not None:
        smtp.login(unquote(parts.username), unquote(parts.password or ""))
