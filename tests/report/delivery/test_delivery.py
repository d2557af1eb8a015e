"""A report goes once to where it was meant to go, whole, and no secret is told on the way; what fails is kept."""

import csv
import json
import socket
import stat
from decimal import Decimal
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from router.cli import delivery
from router.cli.delivery import DeliveryError, Format, deliver, format_of, post, write_file, written_as
from router.report.report import Column, Kind, Report
from router.types.target import Secret
from tests.report.delivery.sinks import Mailed, mail_server, webhook
from tests.tables import data, each_row

HOSTILE = "<script>alert(1)</script>\r\nBcc: all@example.com"
REPORT = Report(
    name="spend",
    title=f"Spend by {HOSTILE}",
    columns=(Column("tag", Kind.LABEL), Column("cost_usd", Kind.USD)),
    rows=((HOSTILE, Decimal("0.000000001")), ("=1+1", Decimal(-3))),
)
AT_ONCE = (0.0, 0.0, 0.0)
"""How long to wait before each further try."""


def server(sink: Mailed, user: str = "", scheme: str = "smtp", host: str = "127.0.0.1") -> Secret:
    return Secret(f"{scheme}://{user}{host}:{sink.port}")


# everywhere


def test_everywhere_at_once(tmp_path: Path) -> None:
    out = tmp_path / "spend.csv"
    with webhook() as hook, mail_server() as sink:
        environ = {"LOWPASS_SMTP_URL": server(sink).reveal(), "LOWPASS_SMTP_FROM": "b@example.com"}
        environ["LOWPASS_REPORT_WEBHOOK_TOKEN"] = "t"
        deliver(REPORT, written_as(REPORT, Format.CSV), environ, tmp_path, out, hook.url, ["a@example.com"])
    assert out.read_bytes().startswith(b"tag,cost_usd\r\n")
    assert json.loads(hook.bodies[0], parse_float=Decimal)["rows"][0]["cost_usd"] == Decimal("1e-9")
    assert hook.headers[0]["authorization"] == "Bearer t"
    assert sink.recipients == ["a@example.com"]
    assert not (tmp_path / "reports").exists()


def test_one_failure_keeps_nothing_else_back_and_the_report_is_kept(tmp_path: Path) -> None:
    with webhook(410) as hook, mail_server() as sink:
        # The folder is missing, the webhook is gone.
        places = (tmp_path / "no" / "where", hook.url, ["a@example.com"])
        with pytest.raises(DeliveryError, match=r"(?s)No such file or directory.*answered 410") as failed:
            deliver(REPORT, b"", {"LOWPASS_SMTP_URL": server(sink).reveal()}, tmp_path, *places)
    assert len(sink.mails) == 1
    (kept,) = (tmp_path / "reports").iterdir()
    assert (str(kept) in str(failed.value), json.loads(kept.read_bytes())["name"]) == (True, "spend")


def test_what_can_not_even_be_kept_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file, no folder")
    with pytest.raises(DeliveryError, match="nor could it be kept"):
        deliver(REPORT, b"", {}, home, webhook="ftp://x")


# files


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "spend.json"
    path.write_text("last week's")
    write_file(path, b"yesterday's")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DeliveryError, match="No space left"):
        write_file(path, b"today's")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("spend.json", "yesterday's")]
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600


@each_row(
    "options, table, out, expected",
    [
        *(((), "", None, Format.TEXT), (("json",), "", None, Format.JSON), (("html",), "", "r.json", Format.HTML)),
        *(((), "", "r.json", Format.JSON), ((), "", "r.csv", Format.CSV), ((), "", "r.html", Format.HTML)),
        *(((), "", "r.txt", Format.TEXT), ((), "", "r.log", Format.TEXT), (("csv", "json"), "", None, None)),
        *(((), "violations", None, Format.CSV), ((), "violations", "r.html", Format.CSV)),
        (("json",), "violations", None, None),
    ],
)
def test_which_form(options: tuple[str, ...], table: str, out: str | None, expected: Format | None) -> None:
    given = {name: name in options for name in ("json", "csv", "html")}
    assert format_of(given, table, None if out is None else Path(out)) is expected


# mail: to read, to look at, to calculate with

send = partial(delivery.send, REPORT, to=["cfo@example.com"], sender="b@example.com", waits_s=AT_ONCE)


def asked(sink: Mailed, verb: str) -> int:
    return len([command for command in sink.said if command.upper().startswith(verb)])


def test_all_three_forms_arrive() -> None:
    with mail_server() as sink:
        send(server=server(sink), to=["cfo@example.com", "dev@example.com"])
    (got,) = sink.mails
    assert sink.recipients == ["cfo@example.com", "dev@example.com"]
    assert (got["From"], got["To"], got["Bcc"]) == ("b@example.com", "cfo@example.com, dev@example.com", None)
    assert "\\r\\n" in got["Subject"]
    text, page, rows = (part.get_content() for part in got.walk() if not part.is_multipart())
    assert "0.000000001" in text
    assert "<script>" not in page
    assert "0.000000001" in page
    found = list(csv.DictReader(StringIO(rows, newline="")))
    assert [row["cost_usd"] for row in found] == ["0.000000001", "-3"]
    assert found[1]["tag"] == "'=1+1"


def test_without_a_sender_it_is_from_the_user_who_signs_in() -> None:
    with mail_server() as sink:
        send(server=server(sink, "re%40ports:p%40ss@"), sender="")
    assert sink.mails[0]["From"] == "re@ports"
    assert asked(sink, "AUTH PLAIN") == 1


@each_row(
    "verb, answer, times",
    [
        *(("MAIL", "451 later", 4), ("RCPT", "450 later", 4), ("RCPT", "550 nobody", 1), ("MAIL", "553 not you", 1)),
        ("AUTH", "535 wrong", 1),
    ],
)
def test_a_server_that_says_later_is_asked_again_and_one_that_says_no_is_believed(
    verb: str, answer: str, times: int
) -> None:
    says = f"answered {answer[:3]}" + (", 4 times" if times > 1 else "")
    with mail_server({verb: answer}) as sink, pytest.raises(DeliveryError, match=says) as failed:
        send(server=server(sink, "me:hunter2@"))
    assert asked(sink, verb) == times
    assert "hunter2" not in str(failed.value)
    assert sink.mails == []


def test_smtps_never_speaks_in_the_clear() -> None:
    with mail_server() as sink, pytest.raises(DeliveryError, match="SSLError"):
        send(server=server(sink, scheme="smtps"))
    assert sink.mails == []


NO_SERVERS = ("mail.example.com", "http://mail.example.com", "smtp://mail.example.com:mail", "smtp://:25")


@each_row(
    "url, to, says",
    [
        (None, "a@example.com", "needs LOWPASS_SMTP_URL"),
        *((url, "a@example.com", "LOWPASS_SMTP_URL is no address") for url in NO_SERVERS),
        *(("smtp://127.0.0.1:9", to, "is no mail address") for to in ("nobody", "a@b\r\nBcc: c@d", "")),
    ],
)
def test_a_mail_that_can_not_be_sent_says_why(url: str | None, to: str, says: str) -> None:
    with pytest.raises(DeliveryError, match=says):
        send(to=[to], server=None if url is None else Secret(url))


# webhooks

TOKEN = Secret("ho" + "rse")
BODY = b'{"object": "report"}'
call = partial(post, body=BODY, token=TOKEN, waits_s=AT_ONCE)


@each_row("statuses", [(200,), (204,), (500, 503, 429, 200)])
def test_a_webhook_is_called_even_if_the_receiver_stumbles(statuses: tuple[int, ...]) -> None:
    with webhook(*statuses) as sink:
        call(f"{sink.url}/hook?id=7")
    assert (sink.bodies, sink.paths[0]) == ([BODY] * len(statuses), "/hook?id=7")
    assert sink.headers[0]["authorization"] == f"Bearer {TOKEN.reveal()}"
    assert sink.headers[0]["content-type"] == "application/json"


@each_row("status, times", [(500, 4), (429, 4), (404, 1), (401, 1), (302, 1)])
def test_a_receiver_that_refuses_is_named(status: int, times: int) -> None:
    """A redirect is no delivery: it would take the token elsewhere."""
    with webhook(status) as sink, pytest.raises(DeliveryError, match=rf"127\.0\.0\.1 answered {status}") as failed:
        call(f"{sink.url}/s3cret")
    assert len(sink.bodies) == times
    assert "s3cret" not in str(failed.value)
    assert TOKEN.reveal() not in str(failed.value)


def test_where_there_is_no_server_the_connection_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DeliveryError, match="ConnectionRefusedError"):
        call(f"http://127.0.0.1:{port}", token=None)


@each_row("url, says", data(__file__, "refused.yaml"))
def test_addresses_that_are_not_tried(url: str, says: str) -> None:
    with pytest.raises(DeliveryError, match=says) as failed:
        call(url)
    assert "pass@" not in str(failed.value)


# encryption


def test_encryption_is_used_where_it_is_offered(trusted: Path) -> None:
    with mail_server(certificate=trusted) as mailed, webhook(certificate=trusted) as hook:
        send(server=server(mailed, host="localhost"))
        call(hook.url, token=None)
    assert (mailed.encrypted, len(mailed.mails)) == (True, 1)
    assert hook.bodies == [BODY]
    assert "authorization" not in hook.headers[0]


def test_a_certificate_of_no_known_authority_is_not_believed(certificate: Path) -> None:
    with mail_server(certificate=certificate) as mailed, pytest.raises(DeliveryError, match="SSLCertVerificationError"):
        send(server=server(mailed, "me:pw@", host="localhost"))
    with webhook(certificate=certificate) as hook, pytest.raises(DeliveryError, match="SSLCertVerificationError"):
        call(hook.url)
    assert (asked(mailed, "AUTH"), hook.bodies) == (0, [])
