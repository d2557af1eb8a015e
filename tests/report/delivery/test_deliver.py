"""All deliveries are tried, a file is whole or as it was, and what could not be delivered is kept."""

import json
import stat
from decimal import Decimal
from pathlib import Path

import pytest

from router.cli.delivery.deliver import Wanted, deliver
from router.cli.delivery.files import put
from router.cli.delivery.formats import Format, chosen
from router.cli.delivery.tries import Undelivered
from router.report.report import Column, Kind, Report
from tests.report.delivery.sinks import mail_server, webhook
from tests.tables import each_row

REPORT = Report(
    name="spend",
    title="Spend",
    columns=(Column("target", Kind.LABEL), Column("cost_usd", Kind.USD)),
    rows=(("mini", Decimal("0.000000001")),),
)


def test_everywhere_at_once(tmp_path: Path) -> None:
    out = tmp_path / "spend.csv"
    with webhook() as hook, mail_server() as mail:
        environ = {"LOWPASS_SMTP_URL": f"smtp://127.0.0.1:{mail.port}", "LOWPASS_SMTP_FROM": "b@example.com"}
        deliver(
            REPORT,
            Wanted(form=Format.CSV, out=out, webhook=hook.url, email=["a@example.com"]),
            {**environ, "LOWPASS_REPORT_WEBHOOK_TOKEN": "t"},
            tmp_path,
        )
    assert out.read_bytes() == b'target,cost_usd\r\n"mini",0.000000001\r\n'
    assert json.loads(hook.bodies[0], parse_float=Decimal)["rows"] == [{"target": "mini", "cost_usd": Decimal("1e-9")}]
    assert hook.headers[0]["authorization"] == "Bearer t"
    assert mail.recipients == ["a@example.com"]
    assert not (tmp_path / "reports").exists()


def test_one_failure_keeps_nothing_else_back_and_the_report_is_kept(tmp_path: Path) -> None:
    with webhook(410) as hook, mail_server() as mail:
        wanted = Wanted(
            form=Format.TEXT, out=tmp_path / "no" / "where", webhook=hook.url, email=["a@example.com"]
        )  # the folder is missing, the webhook is gone
        with pytest.raises(Undelivered) as failed:
            deliver(REPORT, wanted, {"LOWPASS_SMTP_URL": f"smtp://127.0.0.1:{mail.port}"}, tmp_path)
    assert len(mail.mails) == 1
    said = str(failed.value)
    assert "No such file or directory" in said
    assert "answered 410" in said
    (kept,) = (tmp_path / "reports").iterdir()
    assert str(kept) in said
    assert json.loads(kept.read_bytes())["name"] == "spend"


def test_what_can_not_even_be_kept_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file, no folder")
    with pytest.raises(Undelivered, match="nor could it be kept"):
        deliver(REPORT, Wanted(form=Format.TEXT, webhook="ftp://x"), {}, home)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "spend.json"
    path.write_text("yesterday's")
    put(path, b"today's")
    assert path.read_text() == "today's"
    assert [one.name for one in tmp_path.iterdir()] == ["spend.json"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600


def test_a_full_disk_leaves_the_old_file_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "spend.json"
    path.write_text("yesterday's")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Undelivered, match="No space left"):
        put(path, b"today's")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("spend.json", "yesterday's")]


@each_row(
    "options, table, out, expected",
    [
        ((), "", None, Format.TEXT),
        (("json",), "", None, Format.JSON),
        ((), "", "r.json", Format.JSON),
        ((), "", "r.csv", Format.CSV),
        ((), "", "r.html", Format.HTML),
        ((), "", "r.txt", Format.TEXT),
        ((), "", "r.log", Format.TEXT),
        (("html",), "", "r.json", Format.HTML),
        ((), "violations", None, Format.CSV),
        (("csv", "json"), "", None, None),
        (("json",), "violations", None, None),
        ((), "violations", "r.html", Format.CSV),
    ],
)
def test_which_form(options: tuple[str, ...], table: str, out: str | None, expected: Format | None) -> None:
    given = {name: name in options for name in ("json", "csv", "html")}
    assert chosen(given, table, None if out is None else Path(out)) is expected
