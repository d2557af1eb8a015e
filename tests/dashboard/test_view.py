"""Every view of a report is a URL, and the form leads to it."""

import pytest
from starlette.datastructures import QueryParams

from router.api.dashboard.view import Filter, view
from router.errors import ClientError
from router.report.asked import Question


def question(query: str) -> Question:
    return view(QueryParams(query)).question()


def test_without_a_query_it_is_the_last_month() -> None:
    assert question("") == Question(since="30d")
    assert view(QueryParams("")).query() == ""


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("since=all", Question()),
        ("until=7d", Question(until="7d")),
        ("since=90d&until=7d&zone=Europe%2FBerlin", Question(since="90d", until="7d", zone="Europe/Berlin")),
        ("by=day,target", Question(by="day,target", since="30d")),
        ("by=day&by=target&by=", Question(by="day,target", since="30d")),
        ("where=target%3Da,b&where=class!%3Dpii", Question(where=("target=a,b", "class!=pii"), since="30d")),
        ("baseline=big", Question(baseline="big", since="30d")),
    ],
)
def test_a_url_says_what_is_asked(query: str, asked: Question) -> None:
    assert question(query) == asked
    assert question(view(QueryParams(query)).query().removeprefix("?")) == asked


def test_the_fields_of_the_form_become_a_shorter_url() -> None:
    sent = (
        "by=day&by=&by=&since=30d&until=&zone=&dimension=target&how=%3D&labels=a%2Cb"
        "&dimension=class&how=!%3D&labels=pii&dimension=&how=%3D&labels="
    )
    seen = view(QueryParams(sent))
    assert seen.from_form
    assert seen.query() == "?by=day&where=target%3Da%2Cb&where=class%21%3Dpii"
    assert seen.filters() == (Filter("target", "=", "a,b"), Filter("class", "!=", "pii"), Filter())


def test_half_a_filter_is_none() -> None:
    assert question("dimension=target&how=%3D&labels=+").where == ()
    assert question("dimension=&how=%3D&labels=a").where == ()


def test_a_label_may_hold_what_urls_and_filters_are_made_of() -> None:
    seen = view(QueryParams("dimension=model&how=!%3D&labels=a%3Db%26c%23d"))
    assert seen.where == ("model!=a=b&c#d",)
    assert view(QueryParams(seen.query().removeprefix("?"))).where == seen.where
    assert seen.filters()[0] == Filter("model", "!=", "a=b&c#d")


def test_a_misspelt_parameter_is_not_left_out_silently() -> None:
    with pytest.raises(ClientError, match="sinse"):
        view(QueryParams("sinse=7d"))
