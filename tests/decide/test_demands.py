"""Each demand of a class: who meets it, who does not and why, and that one more class never opens a place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from router.decide.eligible import must_redact, refusal
from router.decide.guard import ClassGuard
from router.decide.requirements import Redact, Requirements
from router.types.redacted import Redacted
from router.types.target import Licence, Provider, Target, Terms
from tests.decide.values import LOCAL, REMOTE, gate, request, target

DAY = 86_400_000
MIT = Licence(id="MIT", commercial=True, train_on_outputs=True)
LLAMA = Licence(id="Llama", commercial=True, train_on_outputs=False, users_max=700)
UNKNOWN = Licence(id="unknown")
CHINESE = replace(REMOTE, jurisdiction="CN")
NOWHERE = replace(REMOTE, jurisdiction="")


def place(provider: Provider = REMOTE, licence: Licence = UNKNOWN, region: str = "", **terms: Any) -> Target:
    return replace(target(provider=provider, region=region, licence=licence), terms=Terms(**terms))


def told(required: dict[str, Any], where: Target, *, now_ms: int = 0, redacted: bool = False) -> str:
    guard = ClassGuard({"pii": Requirements.model_validate(required)}, lambda body: frozenset())
    return guard.refusal(where, frozenset({"pii"}), now_ms, redacted=redacted)


NEVER = {"training": "never"}
REFUSED: dict[str, tuple[dict[str, Any], Target, str]] = {
    "blocked": ({"block": True}, place(), "class pii may not be sent anywhere"),
    "blocked at home": ({"block": True}, place(LOCAL), "class pii may not be sent anywhere"),
    "local only": ({"local_only": True}, place(), "it is not local, and class pii may not leave"),
    "another provider": (
        {"providers": ("a", "b")},
        place(),
        "its provider is remote, and class pii may go to a or b only",
    ),
    "excluded law": (
        {"jurisdictions_not": ("CN", "RU")},
        place(CHINESE),
        "its provider is under the law of CN, and class pii may not go to CN or RU",
    ),
    "unstated law": (
        {"jurisdictions_not": ("CN",)},
        place(NOWHERE),
        "its provider's jurisdiction is not stated, and class pii may not go to CN",
    ),
    "another region": ({"regions": ("eu",)}, place(region="us"), "its region is us, and class pii may go to eu only"),
    "unstated region": ({"regions": ("eu",)}, place(), "its region is not stated, and class pii may go to eu only"),
    "trains": (NEVER, place(training=True), "its provider may train on inputs, and class pii may not be trained on"),
    "may train": (
        NEVER,
        place(),
        "its provider does not state that it never trains on inputs, and class pii may not be trained on",
    ),
    "kept too long": (
        {"retention_days_max": 1},
        place(retention_days=30),
        "its provider keeps inputs for 30 days, and class pii may be kept for 1 day",
    ),
    "kept at all": (
        {"retention_days_max": 0},
        place(retention_days=1),
        "its provider keeps inputs for 1 day, and class pii may not be kept",
    ),
    "kept for who knows": (
        {"retention_days_max": 9_999},
        place(),
        "its provider does not state how long it keeps inputs, and class pii may be kept for 9,999 days",
    ),
    "no agreement": (
        {"baa": True},
        place(training=False, retention_days=0),
        "no business associate agreement covers it, and class pii may not go without one",
    ),
    "unredacted": ({"redact": "remote"}, place(), "it is not local, and class pii must be redacted first"),
    "no such use": (
        {"licence": {"uses": ("commercial", "train_on_outputs")}},
        place(licence=LLAMA),
        "its licence (Llama) does not permit training on outputs, and class pii may go only where it is permitted",
    ),
    "a licence binds at home": (
        {"licence": {"uses": ("commercial",)}},
        place(LOCAL),
        "its licence (unknown) is not known to permit commercial use, and class pii may go only where it is permitted",
    ),
    "too many users": (
        {"licence": {"users": 701}},
        place(LOCAL, LLAMA),
        "its licence (Llama) holds for up to 700 monthly users, and class pii may go only where it holds for 701",
    ),
    "who knows how many users": (
        {"licence": {"users": 1}},
        place(),
        "its licence (unknown) is not known to hold for any monthly users, and class pii may go only where it holds "
        "for 1",
    ),
}
STRICT: dict[str, Any] = {
    "local_only": True,
    "providers": ("nobody",),
    "jurisdictions_not": ("CN",),
    "regions": ("eu",),
    "training": "never",
    "retention_days_max": 0,
    "baa": True,
    "redact": "remote",
}
ADMITTED: dict[str, tuple[dict[str, Any], Target]] = {
    "no demand": ({}, place(CHINESE)),
    "home meets every demand on the place": (STRICT, place(LOCAL)),
    "listed provider": ({"providers": ("remote",)}, place()),
    "another law": ({"jurisdictions_not": ("CN",)}, place()),
    "listed region": ({"regions": ("us", "eu")}, place(region="eu")),
    "never trains": (NEVER, place(training=False)),
    "kept for as long as it may": ({"retention_days_max": 30}, place(retention_days=30)),
    "not kept": ({"retention_days_max": 0}, place(retention_days=0)),
    "agreement": ({"baa": True}, place(baa=True)),
    "redacted where needed only": ({"redact": "needed"}, place()),
    "permitted": ({"licence": {"uses": ("commercial", "train_on_outputs"), "users": 10**9}}, place(licence=MIT)),
    "just few enough users": ({"licence": {"users": 700}}, place(licence=LLAMA)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(case: str) -> None:
    required, where, sentence = REFUSED[case]
    assert told(required, where) == sentence


@pytest.mark.parametrize("case", ADMITTED)
def test_admitted(case: str) -> None:
    assert told(*ADMITTED[case]) == ""


def test_a_class_that_redaction_left_was_not_redacted_in_full() -> None:
    """An encoding, an image, a detector that failed: it must not leave because everything else was replaced."""
    sentence = "it is not local, and class pii could not be redacted in full"
    assert told({"redact": "remote"}, place(), redacted=True) == sentence
    assert told({"redact": "remote"}, place(LOCAL), redacted=True) == ""
    assert told({"redact": "remote", "regions": ("eu",)}, place(), redacted=True).startswith("its region is not stated")


@pytest.mark.parametrize("provider", [REMOTE, LOCAL], ids=["remote", "local"])
def test_expired_evidence_vouches_for_nothing_whatever_the_class(provider: Provider) -> None:
    where = place(provider, expires_ms=20 * DAY, evidence="contract X-12")
    assert told({}, where, now_ms=20 * DAY - 1) == ""
    assert told({}, where, now_ms=20 * DAY) == "the evidence for its terms (contract X-12) expired on 1970-01-21"
    dropped = refusal(where, replace(gate(), now_ms=20 * DAY))
    assert dropped is not None
    assert dropped.reason == "evidence_expired"


def test_the_most_sensitive_class_is_told_with_all_that_object_alike() -> None:
    classes = {
        "open": Requirements(jurisdictions_not=("CN",)),
        "pii": Requirements(training="never"),
        "phi": Requirements(training="never", baa=True),
    }
    guard = ClassGuard(classes, lambda body: frozenset())
    sentence = guard.refusal(place(CHINESE), frozenset(classes), 0, redacted=False)
    assert sentence.endswith("trains on inputs, and classes phi and pii may not be trained on")
    sentence = guard.refusal(place(CHINESE, training=False, baa=True), frozenset(classes), 0, redacted=False)
    assert sentence == "its provider is under the law of CN, and class open may not go to CN"


def test_no_class_at_all_is_every_class() -> None:
    guard = ClassGuard({"open": Requirements(), "secret": Requirements(local_only=True)}, lambda body: frozenset())
    assert guard.refusal(place(), frozenset(), 0, redacted=False)
    assert guard.demands(frozenset()).local_only


def test_another_target_of_the_same_name_is_judged_anew() -> None:
    """As after an edit of the policy, were a guard ever kept."""
    guard = ClassGuard({"pii": Requirements(training="never")}, lambda body: frozenset())
    pii = frozenset({"pii"})
    assert not guard.refusal(place(training=False), pii, 0, redacted=False)
    assert guard.refusal(place(training=True), pii, 0, redacted=False)


@pytest.mark.parametrize(
    ("required", "private"),
    [
        ({}, False),
        ({"local_only": True}, False),
        (NEVER, True),
        ({"retention_days_max": 30}, True),
        ({"baa": True}, True),
    ],
)
def test_what_may_not_be_kept_or_trained_on_is_private(required: dict[str, Any], private: bool) -> None:
    guard = ClassGuard({"pii": Requirements.model_validate(required), "open": Requirements()}, lambda body: frozenset())
    assert guard.private(frozenset({"pii", "open"})) is private


def test_redacted_is_what_counts_where_the_whole_may_not_go() -> None:
    asked, strict = request(), Requirements(local_only=True)
    form = Redacted(asked, frozenset({"open"}), {})
    assert refusal(place(), gate(requirements=strict, redacted=form)) is None
    assert must_redact(place(), gate(requirements=strict, redacted=form))
    assert not must_redact(place(LOCAL), gate(requirements=strict, redacted=form))
    dropped = refusal(place(), gate(requirements=strict, redacted=Redacted(asked, frozenset({"internal"}), {})))
    assert dropped is not None
    assert dropped.detail == "even redacted: it is not local, and class internal may not leave"


WORDS = st.sampled_from(["", "eu", "us"])
MAYBE = st.sampled_from([None, False, True])
DAYS = st.sampled_from([None, 0, 7, 30])
PLACES = st.builds(
    lambda provider, licence, region, terms: replace(
        target(provider=provider, region=region, licence=licence), terms=terms
    ),
    st.sampled_from([REMOTE, CHINESE, NOWHERE, LOCAL]),
    st.sampled_from([MIT, LLAMA, UNKNOWN]),
    WORDS,
    st.builds(Terms, training=MAYBE, retention_days=DAYS, baa=st.booleans(), expires_ms=st.sampled_from([None, 5, 9])),
)


def _some(*words: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sets(st.sampled_from(words)).map(tuple)


DEMANDS = st.builds(
    Requirements,
    block=st.sampled_from([False] * 7 + [True]),
    local_only=st.sampled_from([False] * 3 + [True]),
    regions=_some("eu", "us"),
    jurisdictions_not=_some("CN", "US"),
    providers=_some("remote", "other"),
    training=st.sampled_from([None, "never"]),
    retention_days_max=DAYS,
    baa=st.booleans(),
    licence=st.fixed_dictionaries(
        {"uses": _some("commercial", "train_on_outputs"), "users": st.sampled_from([None, 700, 701])}
    ),
    redact=st.sampled_from(list(Redact)),
)
NAMES = ("a", "b", "c")


@given(
    st.fixed_dictionaries(dict.fromkeys(NAMES, DEMANDS)),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.sets(st.sampled_from(NAMES)),
    PLACES,
    st.sampled_from([0, 5, 9]),
    st.booleans(),
)
def test_one_more_class_never_opens_a_place(
    classes: dict[str, Requirements], fewer: set[str], more: set[str], where: Target, now_ms: int, redacted: bool
) -> None:
    guard = ClassGuard(classes, lambda body: frozenset())
    refused = guard.refusal(where, frozenset(fewer), now_ms, redacted=redacted)
    both = guard.refusal(where, frozenset(fewer | more), now_ms, redacted=redacted)
    assert both or not refused
    assert bool(both) == any(
        bool(guard.refusal(where, frozenset({name}), now_ms, redacted=redacted)) for name in fewer | more
    )
    assert not refused or guard.refusal(where, frozenset(fewer), now_ms, redacted=False), "redaction closes no place"


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, DEMANDS)), PLACES, st.booleans())
def test_what_all_demand_together_is_what_each_demands(
    classes: dict[str, Requirements], where: Target, redacted: bool
) -> None:
    """`demands` and `refusal` are two ways to say the same."""
    guard = ClassGuard(classes, lambda body: frozenset())
    joined = ClassGuard({"all": guard.demands(frozenset(NAMES))}, lambda body: frozenset())
    together = joined.refusal(where, frozenset({"all"}), 0, redacted=redacted)
    assert bool(together) == bool(guard.refusal(where, frozenset(NAMES), 0, redacted=redacted))
