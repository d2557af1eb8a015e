"""The pages as a browser sees them."""

import pytest

from tests.dashboard.fetch import Answer, Page, get
from tests.dashboard.serving import HOSTILE

FIRST, HELD = "0" * 31 + "a", "0" * 31 + "c"
PAGES = ("/dashboard", f"/dashboard/requests/{FIRST}", f"/dashboard/requests/{HELD}")


def page(url: str, status: int = 200) -> Page:
    answer = get(url)
    assert answer.status == status
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.body)


def facts(seen: Page) -> dict[str, list[str]]:
    """First cell → the others; of rows with the same first cell, the first."""
    return {row[0]: row[1:] for row in reversed(seen.rows)}


def test_overview(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    text = " ".join(seen.text.split())
    assert "Spent $0.25 today · $1.25 in 7 days" in text
    assert "Requests 2 today · 3 in 7 days" in text
    assert "Tokens 140 today · 200 in and 60 out in 7 days" in text
    assert "Thinking 75.0 % of the output in 7 days, where reported" in text
    assert "$0 spent of $0.25 · $0.25 left" in text


def test_spend_by_target_is_exact_and_adds_up(gateway: str) -> None:
    rows = facts(page(f"{gateway}/dashboard"))
    assert rows["local"] == ["2", "2", "0", "200", "60", "30", "1", "1.250000001", "0.00000"]
    assert rows["mini"] == ["0", "1", "1", "–", "–", "–", "0", "0.000000000", "0.00000"]
    assert rows["total"] == ["3", "3", "1", "200", "60", "30", "1", "1.250000001", "0.00004"]


def test_the_charts_say_their_amounts_and_stand_on_a_drawn_zero(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    assert {svg.get("aria-label") for svg in seen.named("svg")} >= {"Spend by day in USD", "Spend by target in USD"}
    assert "local: $1.250000001" in seen.text
    assert [line["class"] for line in seen.named("line")].count("axis") == 2


def test_the_latest_requests_come_newest_first_and_link_to_their_own_page(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    links = [str(link["href"]) for link in seen.named("a") if "/requests/" in str(link["href"])]
    assert [link[-1] for link in links] == ["c", "a", "b", "d"]
    assert all(page(gateway + link) for link in links)


def test_states_of_targets_and_engines(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    assert ["local", "house/model", "local", "healthy"] in seen.rows
    assert ["mini", HOSTILE, "local", "half-open"] in seen.rows
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


def test_where_each_class_went(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard")
    assert ["pii", "internal,pii", "local", "–", "–", "no", "1"] in seen.rows
    assert "can't be checked: its policy is not in the ledger" in seen.text


def test_a_request_in_progress_has_no_attempt_yet(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/requests/{HELD}")
    assert facts(seen)["held usd"] == ["0.00004"]
    assert "still being answered" in seen.text


def test_an_unknown_request_is_a_page_too(gateway: str) -> None:
    seen = page(f"{gateway}/dashboard/requests/%3Cb%3Eno", 404)
    assert "<b>no" in seen.text
    assert not seen.named("b")


def test_before_the_first_request(new_gateway: str) -> None:
    text = " ".join(page(f"{new_gateway}/dashboard").text.split())
    assert "Spent $0 today · $0 in 7 days" in text
    assert "Thinking – no model reported its reasoning" in text
    assert "None yet. Send one" in text


@pytest.mark.parametrize("path", PAGES)
def test_names_and_tags_are_text_never_markup(gateway: str, path: str) -> None:
    answer = get(gateway + path)
    assert not Page(answer.body).named("script")
    assert "&lt;script&gt;" in answer.body or path.endswith(HELD)


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
    assert all(address == "data:," or address.startswith("/dashboard") for address in addresses)
    assert "url(" not in answer.body
    assert "@import" not in answer.body


def test_both_colour_schemes_and_a_phone_are_catered_for(gateway: str) -> None:
    body = get(f"{gateway}/dashboard").body
    for part in ("prefers-color-scheme: dark", "max-width: 720px", 'content="width=device-width'):
        assert part in body
