"""A report is posted once, to where it was meant to go, and no secret is told on the way."""

import json
import socket
from pathlib import Path

import pytest

from router.cli.delivery.tries import Undelivered
from router.cli.delivery.webhook import on_this_machine, post
from router.types.secret import Secret
from tests.report.delivery.sinks import webhook

AT_ONCE = (0.0, 0.0, 0.0)
TOKEN = Secret("ho" + "rse")
BODY = b'{"object": "report"}'


@pytest.mark.parametrize("statuses", [(200,), (204,), (500, 503, 429, 200)])
def test_it_is_delivered_even_if_the_receiver_stumbles(statuses: tuple[int, ...]) -> None:
    with webhook(*statuses) as sink:
        post(f"{sink.url}/hook?id=7", BODY, TOKEN, AT_ONCE)
    assert sink.bodies == [BODY] * len(statuses)
    assert sink.paths[0] == "/hook?id=7"
    assert sink.headers[0]["authorization"] == f"Bearer {TOKEN.reveal()}"
    assert sink.headers[0]["content-type"] == "application/json"


@pytest.mark.parametrize(("status", "times"), [(500, 4), (429, 4), (404, 1), (401, 1), (302, 1)])
def test_a_receiver_that_refuses_is_named(status: int, times: int) -> None:
    """A redirect is no delivery: it would take the token elsewhere."""
    with webhook(status) as sink, pytest.raises(Undelivered, match=rf"127\.0\.0\.1 answered {status}") as failed:
        post(f"{sink.url}/s3cret", BODY, TOKEN, AT_ONCE)
    assert len(sink.bodies) == times
    assert "s3cret" not in str(failed.value)
    assert TOKEN.reveal() not in str(failed.value)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Undelivered, match="ConnectionRefusedError"):
        post(f"http://127.0.0.1:{port}", BODY, None, AT_ONCE)


def test_encrypted(trusted: Path) -> None:
    with webhook(certificate=trusted) as sink:
        post(sink.url, BODY, None, AT_ONCE)
    assert json.loads(sink.bodies[0]) == {"object": "report"}
    assert "authorization" not in sink.headers[0]


def test_a_certificate_that_nobody_vouches_for_is_not_believed(certificate: Path) -> None:
    with webhook(certificate=certificate) as sink, pytest.raises(Undelivered, match="SSLCertVerificationError"):
        post(sink.url, BODY, None, AT_ONCE)
    assert sink.bodies == []


@pytest.mark.parametrize(
    ("url", "says"),
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
        post(url, BODY, TOKEN, AT_ONCE)
    assert "pass@" not in str(failed.value)


def test_a_path_that_http_has_no_words_for() -> None:
    with pytest.raises(Undelivered, match="does not allow"):
        post("http://127.0.0.1:9/a b", BODY, Secret("two\nlines"), AT_ONCE)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine(host: str) -> None:
    assert on_this_machine(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "example.com", "127.0.0.1.example.com", "", "::2"])
def test_other_machines(host: str) -> None:
    assert not on_this_machine(host)
