"""The pages in a real browser: they open, complain of nothing, ask no other address, and fit a phone."""

from collections.abc import Iterator

import pytest

from router.ledger.ledger import Ledger
from tests.dashboard.browser import BINARY, Browser, browser
from tests.dashboard.serving import HOSTILE, serving
from tests.dashboard.test_dashboard import FIRST, PAGES, SOUND
from tests.dashboard.test_entry import House
from tests.tables import each_row

if BINARY is None:
    pytest.skip("no Chromium or Chrome is installed", allow_module_level=True)
pytestmark = pytest.mark.timeout(300)
PHONE, SCREEN = 390, 1280
_WIDEST = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_CUT = """
[...document.querySelectorAll("svg text")].filter(text => {
    const place = text.getBoundingClientRect(), figure = text.closest("section").getBoundingClientRect();
    return place.width && (place.left < figure.left - 1 || place.right > figure.right + 1);
}).map(text => text.textContent)
"""
"""Texts of charts that stick out of their card."""


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as tab:
        yield tab


def fine(tab: Browser, url: str) -> None:
    """Nothing was complained of, and no other address was asked; nothing was asked at all beside the page."""
    assert tab.complaints == []
    assert [asked for asked in tab.requests if not asked.startswith((url, "data:"))] == []
    assert tab.value("performance.getEntriesByType('resource').length") == 0


@each_row("width, dark", [(SCREEN, False), (SCREEN, True), (PHONE, False)], ids=["light", "dark", "phone"])
def test_every_page_opens_fits_and_asks_no_other_address(tab: Browser, gateway: str, width: int, dark: bool) -> None:
    tab.look(width, dark=dark)
    for path in PAGES:
        tab.open(gateway + path)
        fine(tab, gateway)
        assert tab.value("document.title").endswith("lowpass")
        assert tab.value(_WIDEST) <= 0
        assert tab.value(_CUT) == []
        luminous = tab.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
        assert (luminous < 100) is dark
        assert tab.value("document.scripts.length") == 0
        assert HOSTILE in tab.value("document.body.innerText") or not path.endswith(FIRST)


def test_the_form_leads_to_a_url_of_its_own(tab: Browser, gateway: str) -> None:
    tab.look(SCREEN)
    tab.open(f"{gateway}/dashboard/reports/spend")
    tab.value("void (document.querySelector('details').open = true)")
    tab.fill("select[name=by]", "target")
    tab.fill("select[name=dimension]", "target")
    tab.fill("input[name=labels]", "local")
    tab.click(".filters button")
    fine(tab, gateway)
    assert tab.value("location.href") == f"{gateway}/dashboard/reports/spend?by=target&where=target%3Dlocal"
    labels = "[...document.querySelectorAll('tbody td.label')].map(cell => cell.textContent.trim())"
    assert tab.value(labels) == ["local"]
    assert tab.value("document.querySelector('select[name=dimension]').value") == "target"
    tab.click(".spans a[href*='since=all']")
    assert tab.value("document.querySelector('.spans strong').textContent") == "all time"


def test_from_the_overview_to_a_request_and_back(tab: Browser, gateway: str) -> None:
    tab.look(PHONE, 844)
    tab.open(f"{gateway}/dashboard")
    tab.click("a[href^='/dashboard/requests/']")
    fine(tab, gateway)
    assert tab.value("location.pathname").startswith("/dashboard/requests/")
    tab.click("a.brand")
    assert tab.value("location.pathname") == "/dashboard"


def test_a_pasted_policy_is_checked(tab: Browser, gateway: str) -> None:
    tab.look(SCREEN)
    tab.open(f"{gateway}/dashboard/policy")
    tab.fill("textarea", SOUND.replace("cheapest", "cheepest"))
    tab.click("button[value=check]")
    fine(tab, gateway)
    assert "1 mistake" in tab.value("document.querySelector('[role=alert]').textContent")
    assert tab.value("document.querySelectorAll('.source .wrong').length") == 1
    assert "cheepest" in tab.value("document.querySelector('textarea').value")


def test_signing_in_and_out(tab: Browser, ledger: Ledger) -> None:
    house = House(ledger)
    tab.look(SCREEN)
    with serving(ledger, house.ring) as url:
        tab.open(f"{url}/dashboard/reports/spend?by=day")
        tab.fill("input[name=key]", "lp-wrong")
        tab.click(".door button")
        assert "not valid" in tab.value("document.body.innerText")
        tab.fill("input[name=key]", house.key)
        tab.click(".door button")
        assert tab.value("location.pathname + location.search") == "/dashboard/reports/spend?by=day"
        assert "finance" in tab.value("document.body.innerText")
        assert tab.value("document.cookie") == ""
        tab.click(".who button")
        tab.open(f"{url}/dashboard")
        assert tab.value("document.querySelectorAll('.door').length") == 1
