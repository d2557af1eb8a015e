"""A mail has the report three times: to read, to look at, to calculate with."""

import csv
from decimal import Decimal
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from router.cli.delivery.mail import send
from router.cli.delivery.tries import Undelivered
from router.report.report import Column, Kind, Report
from router.types.secret import Secret
from tests.report.delivery.sinks import Mailed, mail_server
from tests.tables import each_row

HOSTILE = "<script>alert(1)</script>\r\nBcc: all@example.com"
REPORT = Report(
    name="spend",
    title=f"Spend by {HOSTILE}",
    columns=(Column("tag", Kind.LABEL), Column("cost_usd", Kind.USD)),
    rows=((HOSTILE, Decimal("0.000000001")), ("=1+1", Decimal(-3))),
)
mail_to = partial(send, REPORT, to=["cfo@example.com"], sender="b@example.com", waits_s=(0.0, 0.0, 0.0))


def server(sink: Mailed, user: str = "", scheme: str = "smtp", host: str = "127.0.0.1") -> Secret:
    return Secret(f"{scheme}://{user}{host}:{sink.port}")


def asked(sink: Mailed, verb: str) -> int:
    return len([command for command in sink.said if command.upper().startswith(verb)])


def test_all_three_forms_arrive() -> None:
    with mail_server() as sink:
        mail_to(server=server(sink), to=["cfo@example.com", "dev@example.com"])
    (mail,) = sink.mails
    assert sink.recipients == ["cfo@example.com", "dev@example.com"]
    assert (mail["From"], mail["To"], mail["Bcc"]) == ("b@example.com", "cfo@example.com, dev@example.com", None)
    assert "\\r\\n" in mail["Subject"]
    text, page, rows = (part.get_content() for part in mail.walk() if not part.is_multipart())
    assert "0.000000001" in text
    assert "<script>" not in page
    assert "0.000000001" in page
    found = list(csv.DictReader(StringIO(rows, newline="")))
    assert [row["cost_usd"] for row in found] == ["0.000000001", "-3"]
    assert found[1]["tag"] == "'=1+1"


def test_without_a_sender_it_is_from_the_user_who_signs_in() -> None:
    with mail_server() as sink:
        mail_to(server=server(sink, "re%40ports:p%40ss@"), sender="")
    assert sink.mails[0]["From"] == "re@ports"
    assert asked(sink, "AUTH PLAIN") == 1


@each_row(
    "verb, answer, times",
    [
        ("MAIL", "451 later", 4),
        ("RCPT", "450 later", 4),
        ("RCPT", "550 nobody", 1),
        ("MAIL", "553 not you", 1),
        ("AUTH", "535 wrong", 1),
    ],
)
def test_a_server_that_says_later_is_asked_again_and_one_that_says_no_is_believed(
    verb: str, answer: str, times: int
) -> None:
    again = ", 4 times" if times > 1 else ""
    with (
        mail_server({verb: answer}) as sink,
        pytest.raises(Undelivered, match=f"answered {answer[:3]}{again}") as failed,
    ):
        mail_to(server=server(sink, "me:hunter2@"))
    assert asked(sink, verb) == times
    assert "hunter2" not in str(failed.value)
    assert sink.mails == []


def test_encryption_is_used_where_it_is_offered(trusted: Path) -> None:
    with mail_server(certificate=trusted) as sink:
        mail_to(server=server(sink, host="localhost"))
    assert (sink.encrypted, len(sink.mails)) == (True, 1)


def test_a_certificate_of_no_known_authority_is_not_believed(certificate: Path) -> None:
    with mail_server(certificate=certificate) as sink, pytest.raises(Undelivered, match="SSLCertVerificationError"):
        mail_to(server=server(sink, "me:pw@", host="localhost"))
    assert asked(sink, "AUTH") == 0


def test_smtps_never_speaks_in_the_clear() -> None:
    with mail_server() as sink, pytest.raises(Undelivered, match="SSLError"):
        mail_to(server=server(sink, scheme="smtps"))
    assert sink.mails == []


@each_row(
    "url, to, says",
    [
        (None, "a@example.com", "needs LOWPASS_SMTP_URL"),
        *(
            (url, "a@example.com", "LOWPASS_SMTP_URL is no address")
            for url in (
                *("mail.example.com", "http://mail.example.com"),
                *("smtp://mail.example.com:mail", "smtp://:25"),
            )
        ),
        *(("smtp://127.0.0.1:9", to, "is no mail address") for to in ("nobody", "a@b\r\nBcc: c@d", "")),
    ],
)
def test_what_can_not_be_sent_says_why(url: str | None, to: str, says: str) -> None:
    with pytest.raises(Undelivered, match=says):
        send(REPORT, [to], None if url is None else Secret(url), "b@example.com", ())
