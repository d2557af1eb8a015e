"""Who is let in: by a key in a header, or by the cookie that a key was traded for."""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from router.api.auth import Keyring
from router.api.dashboard.entry import COOKIE, LIFE_S, MOST_FAILURES, WINDOW_S, Entry
from router.errors import ClientError
from router.ledger.keys import callers, create, revoke
from router.ledger.ledger import SqliteLedger
from tests.dashboard.fetch import OURS, Answer, Page, get, post
from tests.dashboard.serving import SECRET, serving

INSIDE = ("/dashboard", "/dashboard/policy", "/dashboard/reports/spend", "/dashboard/reports/spend.csv")
NOW_S = 1_800_000_000


class House(NamedTuple):
    url: str
    ring: Keyring
    ledger: SqliteLedger
    key: str
    weak: str
    """Without the scope."""

    def sign_in(self, key: str, onward: str = "", headers: Mapping[str, str] = OURS) -> Answer:
        return post(f"{self.url}/dashboard/sign-in", {"key": key, "next": onward}, headers)

    def cookie(self) -> dict[str, str]:
        return {"cookie": self.sign_in(self.key).headers["set-cookie"].partition(";")[0]}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    ledger = SqliteLedger(tmp_path / "lowpass.db")
    ledger.migrate()
    with ledger.writing() as connection:
        _, key = create(connection, "finance", scopes=["reports"])
        _, weak = create(connection, "app")
        ring = Keyring(callers(connection), open_to_all=False)
    with serving(ledger, ring) as url:
        yield House(url, ring, ledger, key, weak)


@pytest.mark.parametrize("path", INSIDE)
def test_nobody_is_let_in_without_a_key(house: House, path: str) -> None:
    answer = get(house.url + path)
    assert answer.status == 401
    assert not answer.headers["www-authenticate"].startswith("Basic")
    onward = [field["value"] for field in Page(answer.body).named("input") if field["name"] == "next"]
    assert onward == [path]


def test_who_is_no_browser_is_refused_as_everywhere_else(house: House) -> None:
    answer = get(f"{house.url}/dashboard", {"accept": "*/*"})
    assert (answer.status, answer.headers["content-type"]) == (401, "application/json")
    assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"


def test_the_door_leads_to_the_page_that_was_asked_for(house: House) -> None:
    answer = house.sign_in(house.key, "/dashboard/reports/spend?by=day")
    assert (answer.status, answer.headers["location"]) == (303, "/dashboard/reports/spend?by=day")
    assert get(house.url + "/dashboard/reports/spend?by=day", house.cookie()).status == 200


def test_the_cookie_is_no_key_and_stays_with_the_browser(house: House) -> None:
    given = house.sign_in(house.key).headers["set-cookie"]
    assert house.key not in given
    assert house.key.removeprefix("lp-") not in given
    attributes = {part.strip().partition("=")[0].lower() for part in given.split(";")[1:]}
    assert attributes == {"httponly", "max-age", "path", "samesite"}
    assert "Path=/dashboard" in given
    assert "SameSite=strict" in given
    assert f"Max-Age={LIFE_S}" in given


def test_over_tls_the_cookie_is_sent_back_over_tls_only(house: House) -> None:
    given = house.sign_in(house.key, headers=OURS | {"origin": "https://lowpass.example"})
    assert "Secure" in given.headers["set-cookie"]


@pytest.mark.parametrize("path", INSIDE)
def test_who_has_signed_in_is_let_in(house: House, path: str) -> None:
    assert get(house.url + path, house.cookie()).status == 200


@pytest.mark.parametrize("header", ["Bearer {}", "Basic {}"])
def test_a_key_in_a_header_does_as_well(house: House, header: str) -> None:
    import base64

    sent = house.key if header.startswith("Bearer") else base64.b64encode(f":{house.key}".encode()).decode()
    assert get(f"{house.url}/dashboard", {"authorization": header.format(sent)}).status == 200


def test_a_revoked_key_ends_what_it_opened(house: House) -> None:
    cookie = house.cookie()
    with house.ledger.writing() as connection:
        revoke(connection, "finance")
        house.ring.callers = callers(connection)
    answer = get(f"{house.url}/dashboard", cookie)
    assert answer.status == 401
    assert "Your sign-in has ended" in answer.body


def test_signing_out_takes_the_cookie_away(house: House) -> None:
    answer = post(f"{house.url}/dashboard/sign-out", {}, OURS | house.cookie())
    assert (answer.status, answer.headers["location"]) == (303, "/dashboard/sign-in")
    assert f'{COOKIE}=""' in answer.headers["set-cookie"]
    assert "Max-Age=0" in answer.headers["set-cookie"]


@pytest.mark.parametrize(("key", "status"), [("lp-wrong", 401), ("", 401), ("weak", 403)])
def test_a_wrong_key_opens_nothing(house: House, key: str, status: int) -> None:
    answer = house.sign_in(house.weak if key == "weak" else key)
    assert answer.status == status
    assert answer.headers["set-cookie"] is None
    assert "lp-wrong" not in answer.body
    assert house.weak not in answer.body


@pytest.mark.parametrize(
    "onward",
    [
        *("https://elsewhere.example/dashboard", "//elsewhere.example", "/\\elsewhere.example", "/dashboardx", ""),
        *("/v1/models", "javascript:alert(1)", "/dashboard/\r\nx: y", "/dashboard\\..\\..\\x"),
    ],
)
def test_the_door_never_leads_elsewhere(house: House, onward: str) -> None:
    assert house.sign_in(house.key, onward).headers["location"] == "/dashboard"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "{url}"}, 403),
        ({"sec-fetch-site": "same-origin"}, 303),
        ({"origin": "{url}"}, 303),
    ],
)
def test_only_our_own_pages_may_post(house: House, headers: dict[str, str], status: int) -> None:
    sent = {name: value.format(url=house.url) for name, value in headers.items()}
    assert house.sign_in(house.key, headers=sent).status == status
    assert post(f"{house.url}/dashboard/sign-out", {}, sent).status == status
    tried = post(f"{house.url}/dashboard/policy", {"policy": "version: 1"}, sent | house.cookie())
    assert tried.status == (200 if status == 303 else 403)


def test_whoever_guesses_has_to_wait(house: House) -> None:
    for _ in range(MOST_FAILURES):
        assert house.sign_in("lp-guess").status == 401
    answer = house.sign_in(house.key)
    assert answer.status == 429
    assert 1 <= int(answer.headers["retry-after"]) <= WINDOW_S + 1


class Clock:
    now = float(NOW_S)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def door(house: House) -> tuple[Entry, Clock]:
    clock = Clock()
    return Entry(house.ring, SECRET, clock), clock


def test_a_guesser_may_try_again_after_a_while(house: House, door: tuple[Entry, Clock]) -> None:
    entry, clock = door
    for _ in range(MOST_FAILURES):
        with pytest.raises(ClientError):
            entry.sign_in("lp-guess", "10.0.0.1")
    with pytest.raises(ClientError, match="wait"):
        entry.sign_in(house.key, "10.0.0.1")
    assert entry.sign_in(house.key, "10.0.0.2")
    clock.now += WINDOW_S + 1
    assert entry.sign_in(house.key, "10.0.0.1")


def test_a_sign_in_ends_by_itself(house: House, door: tuple[Entry, Clock]) -> None:
    entry, clock = door
    token = entry.sign_in(house.key, "10.0.0.1")
    clock.now += LIFE_S - 1
    assert entry.caller({}, token).name == "finance"
    clock.now += 1
    with pytest.raises(ClientError, match="ended"):
        entry.caller({}, token)


def test_a_forged_cookie_opens_nothing(house: House, door: tuple[Entry, Clock]) -> None:
    """Another key's name, a later end, another secret, half of it, more than it."""
    entry, _ = door
    token = entry.sign_in(house.key, "10.0.0.1")
    name, expires, signature = token.split(".")
    (other,) = (one.id for one in house.ring.callers.values() if one.name == "app")
    guessed = hmac.new(b"guess", f"dashboard\0{name}.{expires}".encode(), hashlib.sha256).hexdigest()
    for forged in (
        f"{other}.{expires}.{signature}",
        f"{name}.{int(expires) + 1}.{signature}",
        f"{name}.{expires}.{guessed}",
        f"{name}.{expires}.{signature[:-1]}",
        f"{name}.{expires}.",
        f"{name}.{expires}",
        *("", ".", "..", "a.b.c", "a.².c", f"a.{'9' * 5000}.c", f"{token}.x", "\xff", token.upper()),
    ):
        with pytest.raises(ClientError) as refused:
            entry.caller({}, forged)
        assert refused.value.status == 401


def test_another_gateway_on_the_same_ledger_knows_the_cookie(house: House, door: tuple[Entry, Clock]) -> None:
    entry, clock = door
    assert Entry(house.ring, SECRET, clock).caller({}, entry.sign_in(house.key, "10.0.0.1")).name == "finance"


def test_while_no_key_was_made_everybody_is_let_in(gateway: str) -> None:
    answer = get(f"{gateway}/dashboard")
    assert answer.status == 200
    assert "Sign out" not in answer.body
