"""What a report's page shows is all in its URL: grouping, filters, window, zone and baseline."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from msgspec import Struct
from starlette.datastructures import QueryParams

from router.errors import ClientError
from router.report.asked import Question

SPANS = (("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days"), ("all", "all time"))
USUAL = "30d"
"""The window of a page whose URL names none."""
MOST_GROUPS = 3
_SINGLE = ("since", "until", "zone", "baseline", "subject")
_FORM = ("dimension", "how", "labels")
"""A filter as the form sends it, in three fields; URLs write it as one."""
_KNOWN = ("by", "where", "table", *_SINGLE, *_FORM)
"""`table`: which one of a report's tables a CSV is of."""


class Filter(Struct, frozen=True):
    """`how` is "=" or "!="."""

    dimension: str = ""
    how: str = "="
    labels: str = ""


class View(Struct, frozen=True, kw_only=True):
    """`by` has an entry a level. `since` is as the form shows it: "all" is open."""

    by: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    since: str = USUAL
    until: str = ""
    zone: str = ""
    baseline: str = ""
    subject: str = ""
    from_form: bool = False
    """Its URL has the fields of the form, and could be shorter."""

    def question(self) -> Question:
        return Question(
            by=",".join(self.by),
            where=self.where,
            since="" if self.since == "all" else self.since,
            until=self.until,
            zone=self.zone,
            baseline=self.baseline,
            subject=self.subject,
        )

    def query(self, **changed: str) -> str:
        """With the `?`, where there is anything to say."""
        single = {name: changed.get(name, getattr(self, name)) for name in _SINGLE}
        pairs = [("by", ",".join(self.by)), *(("where", text) for text in self.where), *single.items()]
        told = [(name, value) for name, value in pairs if value and (name, value) != ("since", USUAL)]
        return f"?{urlencode(told)}" if told else ""

    def filters(self) -> tuple[Filter, ...]:
        """As rows of the form, and an empty one."""
        return (*map(_filter, self.where), Filter())


def view(params: QueryParams) -> View:
    """Raises a 400 `ClientError` for a parameter that no page has."""
    for name in params:
        if name not in _KNOWN:
            raise ClientError(400, "invalid_request_error", f"There is no filter '{name[:40]}'.", param=name[:40])
    by = tuple(dict.fromkeys(name for text in params.getlist("by") for name in text.split(",") if name))
    single = {name: params.get(name, "").strip() for name in _SINGLE}
    return View(
        by=by,
        where=tuple(dict.fromkeys((*filter(None, params.getlist("where")), *_rows(params)))),
        from_form=any(name in params for name in _FORM),
        **single | {"since": single["since"] or ("all" if single["until"] else USUAL)},
    )


def _rows(params: QueryParams) -> Iterator[str]:
    fields: Sequence[list[str]] = [params.getlist(name) for name in _FORM]
    for dimension, how, labels in zip(*fields, strict=False):
        if dimension and labels.strip():
            yield f"{dimension}{'!=' if how == '!=' else '='}{labels.strip()}"


def _filter(text: str) -> Filter:
    dimension, _, labels = text.partition("=")
    inverted = dimension.endswith("!")
    return Filter(dimension.removesuffix("!"), "!=" if inverted else "=", labels)
