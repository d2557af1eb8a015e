"""A mail has the report three times: to read, to look at, to calculate with."""

import csv
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest

from router.cli.delivery.mail import send
from router.cli.delivery.tries import Undelivered
from router.report.report import Column, Kind, Report
from router.types.secret import Secret
from tests.report.delivery.sinks import Mailed, mail_server

AT_ONCE = (0.0, 0.0, 0.0)
HOSTILE = "<script>alert(1)</script>\r\nBcc: all@example.com"
REPORT = Report(
    name="spend",
    title=f"Spend by {HOSTILE}",
    columns=(Column("tag", Kind.LABEL), Column("cost_usd", Kind.USD)),
    rows=((HOSTILE, Decimal("0.000000001")), ("=1+1", Decimal(-3))),
)


def server(sink: Mailed, user: str = "", scheme: str = "smtp", host: str = "127.0.0.1") -> Secret:
    return Secret(f"{scheme}://{user}{host}:{sink.port}")


def test_all_three_forms_arrive() -> None:
    with mail_server() as sink:
        send(REPORT, ["cfo@example.com", "dev@example.com"], server(sink), "lowpass@example.com", AT_ONCE)
    (mail,) = sink.mails
    assert sink.recipients == ["cfo@example.com", "dev@example.com"]
    assert (mail["From"], mail["To"]) == ("lowpass@example.com", "cfo@example.com, dev@example.com")
    assert mail["Bcc"] is None
    assert "\\r\\n" in mail["Subject"]
    text, page, rows = (part.get_content() for part in mail.walk() if not part.is_multipart())
    assert "0.000000001" in text
    assert "<script>" not in page
    assert "0.000000001" in page
    found = list(csv.DictReader(StringIO(rows, newline="")))
    assert [row["cost_usd"] for row in found] == ["0.000000001", "-3"]
    assert found[1]["tag"] == "'=1+1"


def test_who_it_is_from_and_who_may_send_it() -> None:
    with mail_server() as sink:
        send(REPORT, ["a@example.com"], server(sink, "re%40ports:p%40ss@"), "", AT_ONCE)
    assert sink.mails[0]["From"] == "re@ports"
    assert any(said.startswith("AUTH PLAIN") for said in sink.said)


@pytest.mark.parametrize(("verb", "answer", "tries"), [("MAIL", "451 later", 4), ("RCPT", "450 later", 4)])
def test_a_server_that_says_later_is_asked_again(verb: str, answer: str, tries: int) -> None:
    with mail_server({verb: answer}) as sink, pytest.raises(Undelivered, match=f"answered {answer[:3]}, 4 times"):
        send(REPORT, ["a@example.com"], server(sink), "b@example.com", AT_ONCE)
    assert len([said for said in sink.said if said.upper().startswith(verb)]) == tries


@pytest.mark.parametrize(("verb", "answer"), [("RCPT", "550 nobody"), ("MAIL", "553 not you"), ("AUTH", "535 wrong")])
def test_a_server_that_says_no_is_believed(verb: str, answer: str) -> None:
    with mail_server({verb: answer}) as sink, pytest.raises(Undelivered, match=f"answered {answer[:3]}") as failed:
        send(REPORT, ["a@example.com"], server(sink, "me:hunter2@"), "b@example.com", AT_ONCE)
    assert len([said for said in sink.said if said.upper().startswith(verb)]) == 1
    assert "hunter2" not in str(failed.value)
    assert sink.mails == []


def test_encryption_is_used_where_it_is_offered(trusted: Path) -> None:
    with mail_server(certificate=trusted) as sink:
        send(REPORT, ["a@example.com"], server(sink, host="localhost"), "b@example.com", AT_ONCE)
    assert sink.encrypted
    assert len(sink.mails) == 1


def test_a_certificate_that_nobody_vouches_for_is_not_believed(certificate: Path) -> None:
    with mail_server(certificate=certificate) as sink, pytest.raises(Undelivered, match="SSLCertVerificationError"):
        send(REPORT, ["a@example.com"], server(sink, "me:pw@", host="localhost"), "b@example.com", AT_ONCE)
    assert not any(said.startswith("AUTH") for said in sink.said)


def test_smtps_never_speaks_in_the_clear() -> None:
    with mail_server() as sink, pytest.raises(Undelivered, match="SSLError"):
        send(REPORT, ["a@example.com"], server(sink, scheme="smtps"), "b@example.com", AT_ONCE)
    assert sink.mails == []


@pytest.mark.parametrize(
    ("url", "to", "says"),
    [
        (None, "a@example.com", "needs LOWPASS_SMTP_URL"),
        ("mail.example.com", "a@example.com", "LOWPASS_SMTP_URL is no address"),
        ("http://mail.example.com", "a@example.com", "LOWPASS_SMTP_URL is no address"),
        ("smtp://mail.example.com:mail", "a@example.com", "LOWPASS_SMTP_URL is no address"),
        ("smtp://:25", "a@example.com", "LOWPASS_SMTP_URL is no address"),
        ("smtp://127.0.0.1:9", "nobody", "is no mail address"),
        ("smtp://127.0.0.1:9", "a@b\r\nBcc: c@d", "is no mail address"),
        ("smtp://127.0.0.1:9", "", "is no mail address"),
    ],
)
def test_what_can_not_be_sent_says_why(url: str | None, to: str, says: str) -> None:
    with pytest.raises(Undelivered, match=says):
        send(REPORT, [to], None if url is None else Secret(url), "b@example.com", AT_ONCE)
