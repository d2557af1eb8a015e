"""A report is posted once, to where it was meant to go, and no secret is told on the way."""

import json
import socket
from functools import partial
from pathlib import Path

import pytest

from router.cli.delivery.tries import Undelivered
from router.cli.delivery.webhook import on_this_machine, post
from router.types.secret import Secret
from tests.report.delivery.sinks import webhook
from tests.tables import each_row

TOKEN = Secret("ho" + "rse")
BODY = b'{"object": "report"}'
send = partial(post, body=BODY, token=TOKEN, waits_s=(0.0, 0.0, 0.0))


@each_row("statuses", [(200,), (204,), (500, 503, 429, 200)])
def test_it_is_delivered_even_if_the_receiver_stumbles(statuses: tuple[int, ...]) -> None:
    with webhook(*statuses) as sink:
        send(f"{sink.url}/hook?id=7")
    assert sink.bodies == [BODY] * len(statuses)
    assert sink.paths[0] == "/hook?id=7"
    assert sink.headers[0]["authorization"] == f"Bearer {TOKEN.reveal()}"
    assert sink.headers[0]["content-type"] == "application/json"


@each_row("status, times", [(500, 4), (429, 4), (404, 1), (401, 1), (302, 1)])
def test_a_receiver_that_refuses_is_named(status: int, times: int) -> None:
    """A redirect is no delivery: it would take the token elsewhere."""
    with webhook(status) as sink, pytest.raises(Undelivered, match=rf"127\.0\.0\.1 answered {status}") as failed:
        send(f"{sink.url}/s3cret")
    assert len(sink.bodies) == times
    assert "s3cret" not in str(failed.value)
    assert TOKEN.reveal() not in str(failed.value)


def test_where_there_is_no_server_the_connection_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Undelivered, match="ConnectionRefusedError"):
        send(f"http://127.0.0.1:{port}", token=None)


def test_encrypted(trusted: Path) -> None:
    with webhook(certificate=trusted) as sink:
        send(sink.url, token=None)
    assert json.loads(sink.bodies[0]) == {"object": "report"}
    assert "authorization" not in sink.headers[0]


def test_a_certificate_of_no_known_authority_is_not_believed(certificate: Path) -> None:
    with webhook(certificate=certificate) as sink, pytest.raises(Undelivered, match="SSLCertVerificationError"):
        send(sink.url)
    assert sink.bodies == []


@each_row(
    "url, says",
    [
        ("", "no address"),
        ("example.com/hook", "no address"),
        ("ftp://example.com", "no address"),
        ("https://", "no address"),
        ("https://example.com:port/", "no address"),
        ("https://[::1/", "no address"),
        ("http://example.com/hook", "unencrypted"),
        ("http://10.0.0.7/hook", "unencrypted"),
        ("http://localhost.example.com/", "unencrypted"),
        ("https://user:pass@example.com/", "LOWPASS_REPORT_WEBHOOK_TOKEN"),
    ],
)
def test_addresses_that_are_not_tried(url: str, says: str) -> None:
    with pytest.raises(Undelivered, match=says) as failed:
        send(url)
    assert "pass@" not in str(failed.value)


def test_a_path_that_http_has_no_words_for() -> None:
    with pytest.raises(Undelivered, match="does not allow"):
        send("http://127.0.0.1:9/a b", token=Secret("two\nlines"))


def test_which_hosts_are_this_machine() -> None:
    hosts = ("127.0.0.1", "127.9.9.9", "::1", "localhost")
    others = ("10.0.0.1", "example.com", "127.0.0.1.example.com", "", "::2")
    assert [host for host in (*hosts, *others) if on_this_machine(host)] == list(hosts)
