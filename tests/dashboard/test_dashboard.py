"""The pages as a browser sees them."""

import pytest

from router.ledger.facts.attempts import HOUR_MS
from router.ledger.packed.expire import expire
from router.ledger.packed.pack import pack
from router.report.catalog import REPORTS as CATALOG
from tests.dashboard.conftest import HAPPENED
from tests.dashboard.fetch import Answer, Page, get
from tests.dashboard.serving import HOSTILE, NOW_MS, serving
from tests.report.filled import fill
from tests.stores import Make

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
    text = text_of(page(f"{gateway}/dashboard"))
    assert "Spent today $0.25 $1.25 in 7 days · $1.25 in 30" in text
    assert "Requests today 2 3 in 7 days, 0 failed · 140 tokens today" in text
    assert "Thinking 75.0 % of the output in 7 days, where reported" in text
    assert "Pass rate – no answer was judged in 7 days" in text
    assert "$0 spent of $0.25 · $0.25 left" in text
    assert "Latest requests 3 in flight" in text


def test_a_report_is_exact_and_adds_up(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/reports/spend?since=all")
    cost = seen.rows[0].index("cost $")
    rows = facts(seen)
    assert rows["local"][cost - 1] == "1.250000002"
    assert rows["mini"][cost - 1] == "0.000000000"
    assert rows["total"][cost - 1] == "1.250000002"


def test_the_charts_say_their_amounts_and_stand_on_a_drawn_zero(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    assert "Spend by day and target" in {svg.get("aria-label") for svg in seen.named("svg")}
    assert {"title": "local: $1.250000001"}.items() <= next(
        attributes for attributes in seen.named("li") if "local" in str(attributes.get("title"))
    ).items()
    assert [line["class"] for line in seen.named("line")].count("axis") >= 3


def test_the_latest_requests_come_newest_first_and_link_to_their_own_page(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    links = [str(link["href"]) for link in seen.named("a") if "/requests/" in str(link["href"])]
    assert [link[-1] for link in links] == ["c", "a", "b", "d"]
    assert all(page(gateway + link) for link in links)


@pytest.mark.parametrize("path", REPORTS)
def test_every_report_has_a_page_and_its_tables_as_csv(gateway: str, path: str) -> None:
    seen = page(gateway + path)
    assert ("a", {"href": path, "aria-current": "page"}.items()) <= (
        "a",
        next(link for link in seen.named("a") if link.get("aria-current")).items(),
    )
    for link in [str(link["href"]) for link in seen.named("a") if ".csv" in str(link["href"])]:
        answer = get(gateway + link)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["content-disposition"].startswith("attachment")


def test_a_form_leads_to_a_url_that_says_the_same(gateway: str) -> None:
    answer = get(f"{gateway}/dashboard/reports/spend?by=day&by=&since=7d&until=&dimension=target&how=!%3D&labels=mini")
    assert answer.status == 303
    assert answer.headers["location"] == "/dashboard/reports/spend?by=day&where=target%21%3Dmini&since=7d"
    assert "mini" not in facts(page(gateway + answer.headers["location"]))


@pytest.mark.parametrize(
    ("query", "told"),
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
def test_what_is_wrong_with_a_filter_stands_beside_the_form(gateway: str, query: str, told: str) -> None:
    seen = page(f"{gateway}/dashboard/reports/spend?{query}", 400)
    assert told in text_of(seen)
    assert any(field["name"] == "since" for field in seen.named("input"))


def test_a_question_that_expired_rows_would_answer_says_what_can_be_asked(new_ledger: Make) -> None:
    ledger = fill(new_ledger(), HAPPENED[1:])
    pack(ledger, NOW_MS + HOUR_MS)
    assert expire(ledger, NOW_MS + HOUR_MS, HOUR_MS) == 1
    with serving(ledger) as url:
        told = text_of(page(f"{url}/dashboard/reports/spend?by=session", 400))
        assert "have expired" in told
        assert "can't be told apart by session" in told
        assert facts(page(f"{url}/dashboard/reports/spend?since=all"))["local"]
        assert "Spent today $0 $1.00 in 7 days" in text_of(page(f"{url}/dashboard"))


def test_an_unknown_report_is_a_page_too(gateway: str) -> None:
    assert "There is no report 'nothing'" in text_of(page(f"{gateway}/dashboard/reports/nothing", 404))


def test_a_page_asks_for_itself_again_only_where_its_url_says_so(gateway: str) -> None:
    def often(query: str) -> list[str | None]:
        found = page(f"{gateway}/dashboard{query}").named("meta")
        return [one["content"] for one in found if one.get("http-equiv") == "refresh"]

    assert [often(query) for query in ("", "?refresh=10", "?refresh=0", "?refresh=99999", "?refresh=x")] == [
        [],
        ["10"],
        ["5"],
        ["3600"],
        [],
    ]


def test_states_of_targets_and_engines(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    assert ["local", "house/model", "healthy"] in seen.rows
    assert ["mini", HOSTILE, "half-open"] in seen.rows
    assert ["smollm2", "local/smollm2" + HOSTILE, "3 restarts", "restarting"] in seen.rows


def test_a_request_with_its_attempts_and_its_decision(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/requests/{FIRST}")
    rows = facts(seen)
    assert rows["state"] == ["settled"]
    assert rows["tags"] == [HOSTILE]
    assert rows["cost usd"] == ["0.250000001"]
    assert rows["outcome"] == ["server_error", "ok"]
    assert rows["cost $"] == ["0.000000000", "0.250000001"]
    assert rows["output reasoning"] == ["–", "30"]
    assert rows["classification data class"] == ["pii"]
    assert ["far", "data_class", "class pii may not leave for CN"] in seen.rows
    assert any(row[:5] == ["mini", "house/model", "–", "no", "0.000001234"] for row in seen.rows)
    assert rows["classification classes"] == ["internal, pii"]
    assert ["pii", "identifiers.email", "1"] in seen.rows
    assert rows["sent as"] == ["internal,pii", "internal,pii"]


def test_a_request_in_progress_has_no_attempt_yet(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/requests/{HELD}")
    assert facts(seen)["held usd"] == ["0.00004"]
    assert facts(seen)["state"] == ["held"]
    assert "Attempts None." in text_of(seen)


def test_an_unknown_request_is_a_page_too(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/requests/%3Cb%3Eno", 404)
    assert "<b>no" in seen.text
    assert not seen.named("b")


def test_before_the_first_request(new_gateway: str) -> None:
    text = text_of(page(f"{new_gateway}/dashboard"))
    assert "Spent today $0 $0 in 7 days" in text
    assert "Thinking – no model reported its reasoning" in text
    assert "None yet. Send one" in text
    assert "Nothing in this window." in text_of(page(f"{new_gateway}/dashboard/reports/spend"))


@pytest.mark.parametrize("path", PAGES)
def test_names_and_tags_are_text_never_markup(gateway: str, path: str) -> None:
    answer = get(gateway + path)
    assert not Page(answer.body).named("script")
    assert "&lt;script&gt;" in answer.body or path not in HOSTILE_PAGES


def test_a_name_turns_neither_text_nor_terminals(gateway: str) -> None:
    """It is shown with its codes, so that it can't pose as another, and stands alone in its cell."""
    for path in ("/dashboard/reports/spend?by=key&since=all", "/dashboard/reports/spend.csv?by=key&since=all"):
        body = get(gateway + path).body
        assert "\u202e" not in body
        assert "\x1b" not in body
        assert "a\\u202eb\\x1b[31m\\u2066c" in body


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_loaded_from_anywhere(gateway: str, path: str) -> None:
    answer: Answer = get(gateway + path)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    addresses = [
        str(attributes[name])
        for _, attributes in Page(answer.body).tags
        for name in ("src", "href", "action", "data", "srcset")
        if attributes.get(name)
    ]
    assert addresses
    assert all(address.startswith(("/dashboard", "#")) or address == "data:," for address in addresses)
    assert "url(" not in answer.body
    assert "@import" not in answer.body


def test_both_colour_schemes_and_a_phone_are_catered_for(gateway: str) -> None:
    body = get(f"{gateway}/dashboard").body
    for part in ("prefers-color-scheme: dark", "max-width: 720px", 'content="width=device-width'):
        assert part in body
