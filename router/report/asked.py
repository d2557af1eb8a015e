"""A question as people write it, in words, turned into what a report is asked."""

from collections.abc import Collection, Sequence
from datetime import UTC, tzinfo
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from msgspec import Struct

from router.errors import ClientError
from router.report.moment import moment
from router.report.source import Asked, Definition


class Question(Struct, frozen=True, kw_only=True):
    """Everything as text, empty where nothing was said: from the command line, a URL or a form."""

    by: str = ""
    """Names with commas."""
    where: tuple[str, ...] = ()
    """`dimension=label,label` or `dimension!=label,label`; all of them hold."""
    since: str = ""
    until: str = ""
    zone: str = ""
    baseline: str = ""
    subject: str = ""


def asked(definition: Definition, question: Question, now_ms: int) -> Asked:
    """All but the filters, which only the ledger can tell (`router.report.filters`).

    Raises `ClientError`: 400 with the `param` that makes no sense.
    """
    zone = zone_of(question.zone)
    since_ms, until_ms = moment("since", question.since, now_ms, zone), moment("until", question.until, now_ms, zone)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise wrong("since", f"since ({question.since}) is not before until ({question.until}).")
    return Asked(
        by=_by(definition, _names(question.by)),
        since_ms=since_ms,
        until_ms=until_ms,
        zone=zone,
        now_ms=now_ms,
        baseline=_baseline(definition, question.baseline),
        subject=_subject(definition, question.subject),
    )


def zone_of(name: str) -> tzinfo:
    """An IANA time zone; UTC for "". Raises a 400 `ClientError`."""
    if not name:
        return UTC
    known = available_timezones()
    if name in known:
        return ZoneInfo(name)
    folded = {one.casefold(): one for one in known}
    near = [folded[one] for one in get_close_matches(name.casefold(), folded, n=3)]
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    raise wrong("zone", f"zone: '{name[:40]}' is no time zone.{meant} Send an IANA name such as Europe/Berlin or UTC.")


def wrong(param: str, message: str) -> ClientError:
    return ClientError(400, "invalid_request_error", message, param=param)


def named(known: Collection[str]) -> str:
    return f"Known: {', '.join(known)}." if known else "There is none."


def _names(text: str) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text else ()


def _by(definition: Definition, names: Sequence[str]) -> tuple[str, ...]:
    if names and not definition.by:
        raise wrong("by", f"{definition.name} has groups of its own: leave by out.")
    unknown = next((name for name in names if name not in definition.by), None)
    if unknown is not None:
        raise wrong("by", f"{definition.name} can't be grouped by '{unknown[:40]}'. {named(definition.by)}")
    return tuple(names)


def _baseline(definition: Definition, name: str) -> str:
    if name and not definition.takes_baseline:
        raise wrong("baseline", f"{definition.name} compares with no baseline: leave it out.")
    return name


def _subject(definition: Definition, subject: str) -> str:
    if subject and not definition.needs_subject:
        raise wrong("subject", f"{definition.name} is about no single request or session: leave '{subject[:40]}' out.")
    if "\0" in subject:
        raise wrong("subject", "subject: a NUL is in no id.")
    if definition.needs_subject and not subject:
        raise wrong("subject", f"{definition.name} is about one: say which, by its id.")
    return subject
