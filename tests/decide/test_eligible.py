"""The hard filter: every reason with the first to be told, each demand of a class, and that a class opens no place."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from router.decide.eligibility import ClassGuard, Gate, Redact, Requirements, must_redact, sift
from router.types.request import Caller, Limits, Redacted
from router.types.target import Capability, Contract, Licence, Provider, Quirks, Target, Terms, Thinking
from tests.decide.values import LOCAL, PRICE, REMOTE, gate, request, target
from tests.tables import data, each_row

DAY = 86_400_000
MIT = Licence(id="MIT", commercial=True, train_on_outputs=True)
LLAMA = Licence(id="Llama", commercial=True, train_on_outputs=False, users_max=700)
UNKNOWN = Licence(id="unknown")
CHINESE = replace(REMOTE, jurisdiction="CN")
NOWHERE = replace(REMOTE, jurisdiction="")
ALWAYS = Thinking(contract=Contract.ALWAYS_ON, levels=("on",), tokens=(500,))
UNMEASURED = Thinking(contract=Contract.ALWAYS_ON)
LOCAL_ONLY = Requirements(local_only=True)
TOOLS = frozenset({Capability.CHAT, Capability.TOOLS})
RESPONSES = frozenset({Capability.CHAT, Capability.RESPONSES})


def caller(name: str) -> Gate:
    return gate(caller=Caller(targets=frozenset({name})))


def limits(**limits: Any) -> Gate:
    return gate(asked=request(limits=Limits(**limits)))


def dropped(where: Target, rules: Gate) -> tuple[str, str]:
    """The reason and its detail, if it is refused."""
    eligible, dropped = sift([where], rules)
    assert len(eligible) + len(dropped) == 1
    assert all(row.target == "t" and row.detail for row in dropped)
    return (dropped[0].reason, dropped[0].detail) if dropped else ("", "")


@each_row(
    "where, rules, reason",
    [
        (target(), caller("other"), "not_allowed"),
        (target(), gate(requirements=LOCAL_ONLY), "data_class"),
        (target(region="us"), limits(region="eu"), "region"),
        (target(), limits(region="eu"), "region"),
        (target(), gate(asked=request(needs=TOOLS)), "capability"),
        (target(), gate(asked=request(needs=RESPONSES)), "capability"),
        (target(context=10), gate(asked=request(prompt_bytes=1_000)), "context"),
        (target(thinking=ALWAYS), limits(thinking_budget=499), "thinking"),
        (target(thinking=UNMEASURED), limits(thinking_budget=9_999), "thinking"),
        (target(thinking=ALWAYS), gate(asked=request(n=2, limits=Limits(thinking_budget=999))), "thinking"),
        (target(price=None), gate(), "unpriced"),
        (target(), gate(resting={"t": 7.0}), "circuit_open"),
        (target(), gate(), None),
        (target(context=125), gate(asked=request(prompt_bytes=1_000)), None),
        (target(), caller("t"), None),
        (target(provider=LOCAL), gate(requirements=LOCAL_ONLY), None),
        (target(provider=LOCAL), limits(region="eu"), None),
        (target(region="eu"), limits(region="eu"), None),
        (target(capabilities=TOOLS), gate(asked=request(needs=TOOLS)), None),
        (target(provider=replace(REMOTE, quirks=Quirks(responses=True))), gate(asked=request(needs=RESPONSES)), None),
        (target(thinking=ALWAYS), limits(thinking_budget=500), None),
        (target(), limits(thinking_budget=0), None),
    ],
)
def test_refused_with_its_reason_or_admitted(where: Target, rules: Gate, reason: str | None) -> None:
    assert dropped(where, rules)[0] == (reason or "")


def test_the_first_of_several_reasons_is_told() -> None:
    """Mending them one after the other shows every reason, in the order of the filter."""
    worst = gate(
        asked=request(needs=TOOLS, prompt_bytes=10**6, limits=Limits(region="eu", thinking_budget=1)),
        caller=Caller(targets=frozenset({"other"})),
        requirements=LOCAL_ONLY,
        resting={"t": 1.0},
    )
    where = target(price=None, thinking=ALWAYS)
    mended: dict[str, Callable[[Gate, Target], tuple[Gate, Target]]] = {
        "not_allowed": lambda g, t: (replace(g, caller=Caller()), t),
        "data_class": lambda g, t: (replace(g, guard=gate().guard), t),
        "region": lambda g, t: (g, replace(t, region="eu")),
        "capability": lambda g, t: (replace(g, request=replace(g.request, needs=frozenset({Capability.CHAT}))), t),
        "context": lambda g, t: (replace(g, request=replace(g.request, prompt_bytes=1)), t),
        "thinking": lambda g, t: (replace(g, request=replace(g.request, limits=Limits(region="eu"))), t),
        "unpriced": lambda g, t: (g, replace(t, model=replace(t.model, price=PRICE))),
        "circuit_open": lambda g, t: (replace(g, resting={}), t),
    }
    for reason, mend in mended.items():
        assert dropped(where, worst)[0] == reason
        worst, where = mend(worst, where)
    assert sift([where], worst)[0] == (where,)


def place(provider: Provider = REMOTE, licence: Licence = UNKNOWN, region: str = "", **terms: Any) -> Target:
    return replace(target(provider=provider, region=region, licence=licence), terms=Terms(**terms))


def guarding(**classes: Requirements) -> ClassGuard:
    return ClassGuard(classes, lambda *body: frozenset())


def told(required: dict[str, Any], where: Target, *, now_ms: int = 0, redacted: bool = False) -> str:
    guard = guarding(pii=Requirements.model_validate(required))
    return guard.refusal(where, frozenset({"pii"}), now_ms, redacted=redacted)


BOTH_USES = ("commercial", "train_on_outputs")
DEMANDED = data(__file__, "demands.yaml")
PLACES_OF = {"chinese": CHINESE, "nowhere": NOWHERE, "local": LOCAL, "llama": LLAMA, "mit": MIT}


def at(where: dict[str, Any]) -> Target:
    return place(**{name: PLACES_OF.get(value, value) for name, value in where.items()})


def test_a_demand_is_refused_in_one_sentence() -> None:
    """A licence binds at home too; what is blocked may not even be sent home."""
    for required, where, problem, demand in DEMANDED["refused"]:
        assert told(required, at(where)) == f"its {problem}, and class pii may {demand}"
    for licence, where, problem, demand in DEMANDED["licences"]:
        sentence = f"its licence {problem}, and class pii may go only where it {demand}"
        assert told({"licence": licence}, at(where)) == sentence
    assert told({"local_only": True}, place()) == "it is not local, and class pii may not leave"
    assert told({"redact": "remote"}, place()) == "it is not local, and class pii must be redacted first"
    uncovered = "no business associate agreement covers it, and class pii may not go without one"
    assert told({"baa": True}, place(training=False, retention_days=0)) == uncovered
    assert {told({"block": True}, where) for where in (place(), place(LOCAL))} == {"class pii may not be sent anywhere"}


@each_row("required, where", DEMANDED["met"])
def test_a_demand_that_is_met(required: dict[str, Any], where: dict[str, Any]) -> None:
    assert told(required, at(where)) == ""


@each_row("provider", [REMOTE, LOCAL])
def test_expired_evidence_vouches_for_nothing_whatever_the_class(provider: Provider) -> None:
    where = place(provider, expires_ms=20 * DAY, evidence="contract X-12")
    assert told({}, where, now_ms=20 * DAY - 1) == ""
    assert told({}, where, now_ms=20 * DAY) == "the evidence for its terms (contract X-12) expired on 1970-01-21"
    assert dropped(where, replace(gate(), now_ms=20 * DAY))[0] == "evidence_expired"


def test_the_most_sensitive_class_is_told_with_all_that_object_alike_and_what_is_private() -> None:
    phi = Requirements(training="never", baa=True)
    guard = guarding(open=Requirements(jurisdictions_not=("CN",)), pii=Requirements(training="never"), phi=phi)
    every = frozenset({"open", "pii", "phi"})
    sentence = guard.refusal(place(CHINESE), every, 0, redacted=False)
    assert sentence.endswith("trains on inputs, and classes phi and pii may not be trained on")
    sentence = guard.refusal(place(CHINESE, training=False, baa=True), every, 0, redacted=False)
    assert sentence == "its provider is under the law of CN, and class open may not go to CN"
    demands: list[dict[str, Any]] = [{}, {"local_only": True}, {"training": "never"}]
    demands += ({"retention_days_max": 9}, {"baa": True})
    guards = [guarding(pii=Requirements.model_validate(required), open=Requirements()) for required in demands]
    assert [guard.demands(frozenset({"pii", "open"})).private for guard in guards] == [False, False, True, True, True]


def test_no_class_at_all_is_every_class_and_another_target_of_the_same_name_is_judged_anew() -> None:
    """As after an edit of the policy, were a guard ever kept."""
    guard = guarding(open=Requirements(), secret=LOCAL_ONLY)
    assert guard.refusal(place(), frozenset(), 0, redacted=False)
    assert guard.demands(frozenset()).local_only
    guard, pii = guarding(pii=Requirements(training="never")), frozenset({"pii"})
    assert not guard.refusal(place(training=False), pii, 0, redacted=False)
    assert guard.refusal(place(training=True), pii, 0, redacted=False)


def test_redacted_is_what_counts_where_the_whole_may_not_go_unless_redaction_left_a_class() -> None:
    """An encoding, an image, a detector that failed: it must not leave because everything else was replaced."""
    asked = request()
    form = Redacted(asked, frozenset({"open"}), {})
    assert sift([place()], gate(requirements=LOCAL_ONLY, redacted=form))[0]
    assert must_redact(place(), gate(requirements=LOCAL_ONLY, redacted=form))
    assert not must_redact(place(LOCAL), gate(requirements=LOCAL_ONLY, redacted=form))
    form = Redacted(asked, frozenset({"internal"}), {})
    detail = "even redacted: it is not local, and class internal may not leave"
    assert dropped(place(), gate(requirements=LOCAL_ONLY, redacted=form))[1] == detail
    sentence = "it is not local, and class pii could not be redacted in full"
    assert told({"redact": "remote"}, place(), redacted=True) == sentence
    assert told({"redact": "remote"}, place(LOCAL), redacted=True) == ""
    assert told({"redact": "remote", "regions": ("eu",)}, place(), redacted=True).startswith("its region is not stated")


def some(*words: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sets(st.sampled_from(words)).map(tuple)


DAYS = st.sampled_from([None, 0, 7, 30])
PLACES = st.builds(
    lambda provider, licence, region, terms: replace(place(provider, licence, region), terms=terms),
    st.sampled_from([REMOTE, CHINESE, NOWHERE, LOCAL]),
    st.sampled_from([MIT, LLAMA, UNKNOWN]),
    st.sampled_from(["", "eu", "us"]),
    st.builds(
        Terms,
        training=st.sampled_from([None, False, True]),
        retention_days=DAYS,
        baa=st.booleans(),
        expires_ms=st.sampled_from([None, 5, 9]),
    ),
)
DEMANDS = st.builds(
    Requirements,
    block=st.sampled_from([False] * 7 + [True]),
    local_only=st.sampled_from([False] * 3 + [True]),
    regions=some("eu", "us"),
    jurisdictions_not=some("CN", "US"),
    providers=some("remote", "other"),
    training=st.sampled_from([None, "never"]),
    retention_days_max=DAYS,
    baa=st.booleans(),
    licence=st.fixed_dictionaries({"uses": some(*BOTH_USES), "users": st.sampled_from([None, 700, 701])}),
    redact=st.sampled_from(list(Redact)),
)
CLASSES = st.fixed_dictionaries(dict.fromkeys("abc", DEMANDS))
MORE = st.sets(st.sampled_from("abc"))


@given(CLASSES, MORE.filter(bool), MORE, PLACES, st.sampled_from([0, 5, 9]), st.booleans())
def test_one_more_class_never_opens_a_place(
    classes: dict[str, Requirements], fewer: set[str], more: set[str], where: Target, now_ms: int, redacted: bool
) -> None:
    def refuses(names: set[str], redacted: bool = redacted) -> bool:
        return bool(guarding(**classes).refusal(where, frozenset(names), now_ms, redacted=redacted))

    assert refuses(fewer | more) or not refuses(fewer)
    assert refuses(fewer | more) == any(refuses({name}) for name in fewer | more)
    assert not refuses(fewer) or refuses(fewer, redacted=False), "redaction closes no place"


@given(CLASSES, PLACES, st.booleans())
def test_what_all_demand_is_what_each_demands(classes: dict[str, Requirements], where: Target, redacted: bool) -> None:
    """`demands` and `refusal` are two ways to say the same."""
    guard = guarding(**classes)
    together = guarding(all=guard.demands(frozenset("abc"))).refusal(where, frozenset({"all"}), 0, redacted=redacted)
    assert bool(together) == bool(guard.refusal(where, frozenset("abc"), 0, redacted=redacted))
