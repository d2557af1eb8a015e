"""A provider that says it served a request elsewhere: the client has its answer, the operator an incident."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.echo import REGION, Echo, echoing
from tests.gateway.running import Gateway, ordered, serving, target, until


def policy(url: str, region: str = "us") -> dict[str, Any]:
    verified = {"flavour": "echo", "region": region, "terms": {"verify": f"header:{REGION}"}}
    targets = {"first": target(url, "text", **verified), "second": target(url, "text", flavour="echo", region="us")}
    return {"version": 1, "targets": targets, "routes": {"auto": ordered("first", "second")}}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Gateway, Echo]]:
    with echoing() as echo, serving(tmp_path / "home", policy(echo.url)) as gateway:
        yield gateway, echo
        gateway.check_books()


def served(gateway: Gateway, **body: Any) -> tuple[str, str, str]:
    """By whom, where, and who says so."""
    reply = gateway.chat("auto", **body)
    assert reply.status == 200
    (attempt,) = gateway.settled(reply.headers["x-lowpass-decision"])["attempts"]
    return attempt["target"], attempt["region"], attempt["region_source"]


@pytest.mark.parametrize("body", [{}, {"stream": True}])
def test_a_mismatch_is_an_incident_and_suspends_the_target(running: tuple[Gateway, Echo], body: dict[str, Any]) -> None:
    gateway, echo = running
    assert served(gateway, **body) == ("first", "us", "verified")
    echo.region = "eu"
    assert served(gateway, **body) == ("first", "eu", "mismatch")
    assert served(gateway, **body) == ("second", "us", "asserted")
    assert gateway.get("/health/ready").json["targets"] == {"first": "region mismatch"}
    (row,) = gateway.rows("SELECT * FROM incidents")
    told = {name: row[name] for name in ("kind", "scope", "subject", "reason")}
    reason = "asked for us, served in eu"
    assert told == {"kind": "region_mismatch", "scope": "target", "subject": "first", "reason": reason}
    assert row["until_ms"] - row["at_ms"] == 3_600_000
    status, report = gateway.lowpass("report", "incidents")
    assert status == 0
    assert "region_mismatch" in report


def test_a_policy_that_was_put_right_is_tried_at_once(running: tuple[Gateway, Echo]) -> None:
    gateway, echo = running
    echo.region = "eu"
    assert served(gateway) == ("first", "eu", "mismatch")
    gateway.write_policy(policy(echo.url, region="eu"))
    until(lambda: not gateway.get("/health/ready").json["targets"])
    assert served(gateway) == ("first", "eu", "verified")
