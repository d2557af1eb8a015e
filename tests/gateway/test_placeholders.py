"""What a provider sees of a session: one placeholder a value, whatever the turn; another session's tell it nothing."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import Gateway, ordered, serving, target
from tests.upstream import Upstream

MAIL, IBAN = "jane.roe@mail.example", "DE89 3704 0044 0532 0130 00"
PLACEHOLDER = re.compile(r"<[A-Z_]+_[A-Z2-7]{8}>")


def policy(url: str) -> dict[str, Any]:
    return {
        "version": 1,
        "targets": {"away": target(url, "normal", region="us")},
        "routes": {"auto": ordered("away")},
        "sensitivity": {
            "default": "internal",
            "classes": {"internal": {}, "people": {"regions": ["eu"], "redact": "needed"}},
            "detectors": [{"kind": "identifiers", "class": "people"}],
        },
    }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("placeholders"), policy(upstream_server.url)) as gateway:
        yield gateway


def seen(gateway: Gateway, upstream: Upstream, text: str, session: str = "") -> list[str]:
    """The placeholders that the provider got."""
    headers = {"x-lowpass-session": session} if session else {}
    assert gateway.chat("away", text, headers).status == 200
    body = upstream.last.body.decode()
    assert MAIL not in body
    assert IBAN not in body
    return PLACEHOLDER.findall(body)


def test_a_value_has_one_placeholder_in_every_turn_of_a_session(running: Gateway, upstream: Upstream) -> None:
    first = seen(running, upstream, f"Mail {MAIL}.", "turns")
    second = seen(running, upstream, f"Pay {IBAN}, and mail {MAIL} again.", "turns")
    assert len(first) == 1
    assert second[1:] == first


@pytest.mark.parametrize("session", ["other", ""])
def test_another_session_has_others(running: Gateway, upstream: Upstream, session: str) -> None:
    """Without a session every request is one of its own."""
    first = seen(running, upstream, f"Mail {MAIL}.", "one" if session else "")
    second = seen(running, upstream, f"Mail {MAIL}.", session)
    assert len(first) == len(second) == 1
    assert first != second


def test_a_session_goes_on_after_a_restart_and_nobody_else_has_its_placeholders(
    tmp_path: Path, upstream: Upstream
) -> None:
    """They hang on a secret of the gateway, not on what it remembers."""
    homes = (tmp_path / "one", tmp_path / "two", tmp_path / "one")
    found = []
    for home in homes:
        with serving(home, policy(upstream.url)) as gateway:
            found.append(seen(gateway, upstream, f"Mail {MAIL}.", "s"))
    assert found[0] == found[2] != found[1]
