"""Who is let in: by a key in a header, or by the cookie that a key was traded for."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping

import httpx
import pytest

from router.api.auth import Keyring
from router.api.dashboard.entry import COOKIE, LIFE_S, MOST_FAILURES, WINDOW_S, SignIn
from router.errors import ClientError
from router.ledger.keys import callers, create, revoke
from router.ledger.ledger import Ledger
from router.types.request import KeyTerms
from tests.dashboard.serving import OURS, SECRET, get, post, serving
from tests.report.asking import Page
from tests.tables import each_row

INSIDE = ("/dashboard", "/dashboard/policy", "/dashboard/reports/spend", "/dashboard/reports/spend.csv")


class House:
    """With the keys "finance" and, without the scope, "app"; `entry` is a door whose clock the test sets."""

    def __init__(self, ledger: Ledger) -> None:
        with ledger.writing() as connection:
            _, self.key = create(connection, KeyTerms(name="finance", scopes=("reports",)), "test")
            _, self.weak = create(connection, KeyTerms(name="app"), "test")
        self.ring = Keyring(ledger, loopback=False)
        self.ring.read()
        self.ledger, self.url, self.now = ledger, "", 1_800_000_000.0
        self.entry = SignIn(self.ring, SECRET, ledger, lambda: self.now)

    def sign_in(self, key: str, onward: str = "", headers: Mapping[str, str] = OURS) -> httpx.Response:
        return post(f"{self.url}/dashboard/sign-in", {"key": key, "next": onward}, headers)

    def cookie_of(self, key: str, address: str = "10.0.0.1") -> str:
        return asyncio.run(self.entry.sign_in(key, address))

    def cookie(self) -> dict[str, str]:
        return {"cookie": self.sign_in(self.key).headers["set-cookie"].partition(";")[0]}


@pytest.fixture
def house(ledger: Ledger) -> Iterator[House]:
    house = House(ledger)
    with serving(ledger, house.ring) as house.url:
        yield house


@each_row("path", INSIDE)
def test_a_key_or_a_sign_in_is_needed(house: House, path: str) -> None:
    answer = get(house.url + path)
    assert answer.status_code == 401
    assert not answer.headers["www-authenticate"].startswith("Basic")
    assert [field["value"] for field in Page(answer.text).named("input") if field["name"] == "next"] == [path]
    assert get(house.url + path, house.cookie()).status_code == 200


def test_a_script_is_refused_as_everywhere_else(house: House) -> None:
    answer = get(f"{house.url}/dashboard", {"accept": "*/*"})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/json")
    assert json.loads(answer.text)["error"]["code"] == "invalid_api_key"


def test_a_key_in_a_header_does_as_well(house: House) -> None:
    for header in (f"Bearer {house.key}", f"Basic {base64.b64encode(f':{house.key}'.encode()).decode()}"):
        assert get(f"{house.url}/dashboard", {"authorization": header}).status_code == 200


ELSEWHERE = ("https://elsewhere.example/dashboard", "//elsewhere.example", "/\\elsewhere.example", "/dashboardx", "")
PAGE = "/dashboard/reports/spend?by=day"


@each_row(
    "onward", [*ELSEWHERE, "/v1/models", "javascript:alert(1)", "/dashboard/\r\nx: y", "/dashboard\\..\\..\\x", PAGE]
)
def test_the_door_leads_to_the_page_that_was_asked_for_and_never_elsewhere(house: House, onward: str) -> None:
    answer = house.sign_in(house.key, onward)
    assert (answer.status_code, answer.headers["location"]) == (303, PAGE if onward == PAGE else "/dashboard")


def test_the_cookie_is_no_key_and_stays_with_the_browser(house: House) -> None:
    given = house.sign_in(house.key).headers["set-cookie"]
    assert house.key.removeprefix("lp-") not in given
    attributes = {part.strip().partition("=")[0].lower() for part in given.split(";")[1:]}
    assert attributes == {"httponly", "max-age", "path", "samesite"}
    for part in ("Path=/dashboard", "SameSite=strict", f"Max-Age={LIFE_S}"):
        assert part in given
    over_tls = house.sign_in(house.key, headers=OURS | {"origin": "https://lowpass.example"})
    assert "Secure" in over_tls.headers["set-cookie"]


def test_a_revoked_key_ends_what_it_opened(house: House) -> None:
    cookie = house.cookie()
    with house.ledger.writing() as connection:
        revoke(connection, "finance", "test")
        house.ring.callers = callers(connection)
    answer = get(f"{house.url}/dashboard", cookie)
    assert answer.status_code == 401
    assert "Your sign-in has ended" in answer.text


def test_signing_out_takes_the_cookie_away(house: House) -> None:
    answer = post(f"{house.url}/dashboard/sign-out", {}, OURS | house.cookie())
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/sign-in")
    assert f'{COOKIE}=""' in answer.headers["set-cookie"]
    assert "Max-Age=0" in answer.headers["set-cookie"]


@each_row("key, status", [("lp-wrong", 401), ("", 401), ("weak", 403)])
def test_a_wrong_key_opens_nothing(house: House, key: str, status: int) -> None:
    answer = house.sign_in(house.weak if key == "weak" else key)
    assert (answer.status_code, answer.headers.get("set-cookie")) == (status, None)
    assert "lp-wrong" not in answer.text
    assert house.weak not in answer.text


@each_row(
    "headers, status",
    [
        *(({"sec-fetch-site": site}, 403) for site in ("cross-site", "same-site")),
        *(({"origin": origin}, 403) for origin in ("https://elsewhere.example", "null")),
        *(({}, 403), ({"sec-fetch-site": "cross-site", "origin": "{url}"}, 403)),
        *(({"sec-fetch-site": "same-origin"}, 303), ({"origin": "{url}"}, 303)),
    ],
)
def test_only_our_own_pages_may_post(house: House, headers: dict[str, str], status: int) -> None:
    sent = {name: value.format(url=house.url) for name, value in headers.items()}
    assert house.sign_in(house.key, headers=sent).status_code == status
    assert post(f"{house.url}/dashboard/sign-out", {}, sent).status_code == status
    tried = post(f"{house.url}/dashboard/policy", {"policy": "version: 1"}, sent | house.cookie())
    assert tried.status_code == (200 if status == 303 else 403)


def test_a_guesser_has_to_wait(house: House) -> None:
    for _ in range(MOST_FAILURES):
        assert house.sign_in("lp-guess").status_code == 401
    answer = house.sign_in("lp-guess")
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= WINDOW_S + 1


@pytest.fixture
def door(ledger: Ledger) -> House:
    return House(ledger)


def test_a_guesser_waits_and_whoever_has_the_key_does_not(door: House) -> None:
    """Behind a proxy all have one address."""
    for _ in range(MOST_FAILURES):
        with pytest.raises(ClientError, match="not valid"):
            door.cookie_of("lp-guess")
    with pytest.raises(ClientError, match="wait"):
        door.cookie_of("lp-guess")
    assert door.cookie_of(door.key)
    door.now += WINDOW_S + 1
    with pytest.raises(ClientError, match="not valid"):
        door.cookie_of("lp-guess")


def test_signing_out_ends_every_sign_in_of_the_key_at_every_process(door: House) -> None:
    token, again = (door.cookie_of(door.key, address) for address in ("10.0.0.1", "10.0.0.2"))
    other = SignIn(door.ring, SECRET, door.ledger, lambda: door.now)
    assert asyncio.run(other.caller({}, again)).name == "finance"
    door.entry.sign_out("no cookie")
    door.entry.sign_out(token)
    for cookie in (token, again):
        with pytest.raises(ClientError, match="ended"):
            asyncio.run(other.caller({}, cookie))
    door.now += 1
    assert asyncio.run(other.caller({}, door.cookie_of(door.key))).name == "finance"


def test_a_sign_in_ends_by_itself(door: House) -> None:
    token = door.cookie_of(door.key)
    door.now += LIFE_S - 1
    # Another gateway on the same ledger knows the cookie.
    for entry in (door.entry, SignIn(door.ring, SECRET, door.ledger, lambda: door.now)):
        assert asyncio.run(entry.caller({}, token)).name == "finance"
    door.now += 1
    with pytest.raises(ClientError, match="ended"):
        asyncio.run(door.entry.caller({}, token))


def test_a_forged_cookie_opens_nothing(door: House) -> None:
    """Another key's name, a later end, another secret, half of it, more than it."""
    token = door.cookie_of(door.key)
    name, expires, signature = token.split(".")
    (other,) = (caller.id for caller in door.ring.callers.values() if caller.name == "app")
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
            asyncio.run(door.entry.caller({}, forged))
        assert refused.value.status == 401


def test_while_no_key_was_made_everybody_is_let_in(gateway: str) -> None:
    answer = get(f"{gateway}/dashboard")
    assert answer.status_code == 200
    assert "Sign out" not in answer.text
