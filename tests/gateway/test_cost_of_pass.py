"""Routes that go by the expected cost of a right answer: what they learn, what they say, what they keep within."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import school
from tests.gateway.running import Client, Gateway, Reply, explained, ordered, processing, serving, until, usd, user
from tests.gateway.school import CHEAP, CHEAP_NANO, DEAR, DEAR_NANO, MOST, Pupil, School, cost_of_pass
from tests.postgres import Server
from tests.tables import data, each_row

FEW = 12
EACH = 8
"""Questions of each kind in one lesson."""
PAIR = ("cheap", "dear")
SUM = school.product(31, 57)


def policy(url: str) -> dict[str, Any]:
    scores = {"cheap": 0.88, "dear": 0.95, "poor": 0.2, "twin": 0.87, "slow": 0.85, "quick": 0.6}
    number = {"verifiers": [{"kind": "number"}]}
    frugal: dict[str, Any] = {"caution": 0, "failure_cost_usd": 0.000001}
    routes = {
        "told": cost_of_pass(*PAIR),
        "checked": cost_of_pass(*PAIR, **number),
        "checked-alone": cost_of_pass("cheap", **number),
        **{f"{name}-told": ordered(name) for name in PAIR},
        **{f"{name}-checked": {**ordered(name), **number} for name in PAIR},
        "plain": cost_of_pass(*PAIR, failure_cost_usd=0.0001),
        "floor": cost_of_pass("poor", "dear", min_pass_rate=0.95, **frugal),
        "no-floor": cost_of_pass("poor", "dear", **frugal),
        "cap": cost_of_pass(*PAIR, failure_cost_usd=1000, max_cost_usd=0.0002),
        "no-cap": cost_of_pass(*PAIR, caution=0, failure_cost_usd=1000),
        "tiny": cost_of_pass(*PAIR, max_cost_usd=0.000001),
        "sticky": cost_of_pass("cheap", "twin", caution=0, sticky=0.2),
        "loose": cost_of_pass("cheap", "twin", caution=0, sticky=0),
        "hurry": cost_of_pass("slow", "quick", deadline_ms=10_000, **frugal),
        "no-hurry": cost_of_pass("slow", "quick", **frugal),
        "planned": {"strategy": {"kind": "plan", "targets": ["slow", "quick"]}, "deadline_ms": 10_000},
    }
    classes = {"internal": {}, "careful": {"min_pass_rate": 0.95}, "precious": {"failure_cost_usd": 1000}}
    classes |= {"frugal": {"max_cost_usd": 0.0002}, "broke": {"max_cost_usd": 0.000001}}
    classes |= {"urgent": {"deadline_ms": 10_000}}
    prices = {name: DEAR if name in ("dear", "quick") else CHEAP for name in scores}
    targets = {name: school.seat(url, name, prices[name], score) for name, score in scores.items()}
    return {"version": 1, "targets": targets, "routes": routes, "sensitivity": {"classes": classes}}


def server() -> School:
    pupils = {name: Pupil(school.able) for name in ("dear", "twin", "quick", "slow")}
    return school.schooling(cheap=Pupil(school.weak), poor=Pupil(school.weak), **pupils)


# Nothing that is said to the module's gateway is of `cheap`, `dear`, `poor` or `twin`: of these it knows their cards.


def ask(gateway: Client, route: str, text: str, **headers: str) -> Reply:
    return school.ask(gateway, route, text, {f"x-lowpass-{k.replace('_', '-')}": v for k, v in headers.items()})


def model(reply: Reply) -> str:
    return reply.headers["x-lowpass-model"]


def lesson(gateway: Gateway, how: str, at: int) -> None:
    """Both are asked for sums and translations; somebody says which answers are right, and that has been learned."""
    before, numbers = school.learned(gateway), range(11 + at, 11 + at + EACH)
    texts = [*(school.product(number, 23) for number in numbers), *(school.house(number) for number in numbers)]
    questions = [(f"{target}-{how}", text) for target in PAIR for text in texts]
    with ThreadPoolExecutor(4) as crowd:
        replies = list(crowd.map(lambda question: ask(gateway, *question), questions))
    if how == "told":
        for (_, text), reply in zip(questions, replies, strict=True):
            tell(gateway, reply, passed=school.expected(text) in school.text_of(reply))
    until(lambda: school.learned(gateway) >= before + len(questions))


def tell(gateway: Gateway, reply: Reply, *, passed: bool) -> None:
    assert gateway.post("/v1/feedback", {"id": reply.id, "passed": passed}).status == 200


@each_row("how, source", [("told", "client"), ("checked", "verifier.number")])
def test_each_task_goes_to_the_target_that_pays(tmp_path: Path, upstream: School, how: str, source: str) -> None:
    """The cards say that the cheap one is nearly as good. It is not at maths, as clients say or verifiers find."""
    texts = (school.product(91, 67), school.house(91))
    with serving(tmp_path, policy(upstream.url)) as gateway:
        replies = [ask(gateway, how, text) for text in texts]
        assert [model(reply) for reply in replies] == ["cheap", "cheap"]
        for number in range(6):
            lesson(gateway, how, number * EACH)
            replies = [ask(gateway, how, text) for text in texts]
            sums, houses = (school.weighed(gateway, reply)["cheap"]["p"] for reply in replies)
            if [*map(model, replies)] == ["dear", "cheap"] and sums < 0.5 and houses > 0.7:
                break
        for reply, target, cost in zip(replies, ("dear", "cheap"), (DEAR_NANO, CHEAP_NANO), strict=True):
            row = gateway.settled(reply.id)
            assert (row["target"], row["cost"]) == (target, cost)
            assert [(attempt["target"], attempt["cost"]) for attempt in row["attempts"]] == [(target, cost)]
            if how == "told":
                tell(gateway, reply, passed=True)
            query = "SELECT source, target, score, weight, expected FROM outcomes WHERE request_id = ?"
            (outcome,) = until(partial(gateway.rows, query, reply.id))
            assert outcome.pop("expected") == school.weighed(gateway, reply)[target]["p"]
            assert outcome == {"source": source, "target": target, "score": 1, "weight": 1}
        last, other = ({name: row["p"] for name, row in school.weighed(gateway, reply).items()} for reply in replies)
        assert last["cheap"] < 0.5 < last["dear"]
        assert other["cheap"] > 0.7
        assert gateway.values("SELECT DISTINCT target FROM outcomes WHERE score = 0") == {("cheap",)}
        gateway.check_books()


def test_a_decision_says_what_was_expected_and_why(gateway: Gateway) -> None:
    reply = ask(gateway, "plain", SUM)
    document = school.decision(gateway, reply)
    difficulty = float(reply.headers["x-lowpass-difficulty"])
    assert document["classification"]["difficulty"] == pytest.approx(difficulty, abs=0.001)
    assert 0 < difficulty < 1
    assert (document["classification"]["task"], document["stakes"]) == ("maths", {"failure_nano": 100_000})
    cheap, dear = document["weighed"]
    assert (cheap["target"], dear["target"], document["chosen"]) == ("cheap", "dear", "cheap")
    assert (cheap["why"], dear["why"]) == ("chosen", "dearer")
    for row in (cheap, dear):
        assert row["value_nano"] == pytest.approx(row["cost_nano"] + 100_000 * (1 - row["p"]), abs=100)
        assert 0 < row["p_sd"] < 0.5
        assert 0 < row["cost_nano_p10"] <= row["cost_nano"] <= row["cost_nano_p90"]
    assert " maths, about " in document["reason"]
    assert dear["cost_nano"] == pytest.approx(200 * cheap["cost_nano"], rel=0.5)
    assert reply.json["usage"]["cost"] == float(reply.headers["x-lowpass-cost-usd"]) == usd(CHEAP_NANO)
    again = school.would(gateway, "plain", SUM)
    # What the answer taught of tokens may have changed lengths and costs meanwhile.
    assert (again["chosen"], again["reason"].split(",")[0]) == ("cheap", document["reason"].split(",")[0])
    assert [row["p"] for row in again["weighed"]] == [row["p"] for row in document["weighed"]]


def test_a_target_is_expected_to_fail_what_it_has_no_room_for(tmp_path: Path) -> None:
    """Neither a long prompt nor a long answer goes to a small context, and a greeting stays with the cheap one."""
    model = {"provider": "openai", "capabilities": ["chat"], "scores": {"mmlu_pro": 0.8}}
    small = {**model, "name": "small", "context": 4_000, "max_output": 1_000, "price": {"input": 0.1, "output": 0.4}}
    large = {**model, "name": "large", "context": 200_000, "max_output": 64_000, "price": {"input": 2, "output": 8}}
    targets = {row["name"]: {"model": row, "api_key": "k"} for row in (small, large)}
    gateway = Gateway(tmp_path, {"version": 1, "targets": targets, "routes": {"auto": cost_of_pass("small", "large")}})
    line = "12:00:01 ERROR billing[7]: connection reset by peer, retry 3\n"
    long, novella = f"{line * 400}\nWhich service failed?", "Write a novella of 20,000 words about a lighthouse."
    for text, chosen in (
        ("hi", "small"),
        (f"{line * 20}\nWhich service failed?", "small"),
        (long, "large"),
        (novella, "large"),
    ):
        document, _ = explained(gateway, {"model": "auto", "messages": user(text)})
        assert document["chosen"] == chosen, text[:60]
    assert {row["target"]: row["p"] < 0.02 for row in document["weighed"]} == {"small": True, "large": False}


def test_explain_prints_what_was_expected(gateway: Gateway) -> None:
    document, table = explained(gateway, {"model": "plain", "messages": user(SUM), "max_tokens": MOST})
    assert ("task maths" in table, "a failure costs $0.0001" in table) == (True, True)
    evidence = f"{document['alike']} answers like it" if document["alike"] else "no answers like it yet"
    assert all(part in " ".join(table.split()) for part in (f", {evidence}", f": {document['chosen']} passes ."))
    assert (document["chosen"], document["stakes"]) == ("cheap", {"failure_nano": 100_000})
    for row in document["weighed"]:
        lines = " ".join(line for line in table.splitlines() if row["target"] in line)
        assert all(part in lines for part in (f"{row['p']:.2f}", f"{row['p_sd']:.2f}", row["why"]))


Headers = Mapping[str, str]
FLOORS = {"data_class": "careful", "min_pass_rate": "0.95"}
FAILURES = {"data_class": "precious", "failure_cost_usd": "1000"}
CAPS = {"data_class": "frugal", "budget_usd": "0.0002"}
# A floor, the price of a failure, or a cap: of the route, of the class or of the request, which has the last word.
KEPT: list[tuple[str, Headers, str, str, str]] = [
    ("no-floor", {}, "poor", "dear", "dearer"),
    ("floor", {"min_pass_rate": "0.01"}, "poor", "dear", "dearer"),
    ("floor", {}, "dear", "poor", "below_floor"),
    *(("no-floor", {name: value}, "dear", "poor", "below_floor") for name, value in FLOORS.items()),
    ("no-cap", {}, "dear", "dear", "chosen"),
    *(("plain", {name: value}, "dear", "dear", "chosen") for name, value in FAILURES.items()),
    ("cap", {}, "cheap", "dear", "over_cost"),
    *(("no-cap", {name: value}, "cheap", "dear", "over_cost") for name, value in CAPS.items()),
]


@each_row("route, headers, chosen, target, why", KEPT)
def test_floor_price_and_cap(
    gateway: Gateway, route: str, headers: Headers, chosen: str, target: str, why: str
) -> None:
    reply = ask(gateway, route, SUM, **headers)
    weighed = school.weighed(gateway, reply)
    assert model(reply) == gateway.settled(reply.id)["target"] == chosen
    assert (weighed[chosen]["why"], weighed[target]["why"]) == ("chosen", why)


@each_row("route, headers", [("tiny", {}), ("plain", {"x-lowpass-data-class": "broke"})])
def test_what_no_target_can_do_for_so_little_is_refused(
    gateway: Gateway, upstream: School, route: str, headers: Headers
) -> None:
    reply = gateway.chat(route, SUM, headers)
    assert (reply.status, reply.error["code"]) == (402, "budget_exceeded")
    assert reply.headers["x-should-retry"] == "false"
    assert {"id": "max_cost_usd", "scope": "request", "limit": 0.000001}.items() <= reply.error["budget"].items()
    row = gateway.settled(reply.id)
    assert (row["status"], row["cost"], row["attempts"], upstream.asked) == (402, 0, [], [])


def test_a_cap_is_never_passed_whatever_was_expected(gateway: Gateway) -> None:
    """Two hundredths of a cent pay for part of an answer: it is shortened, and the cap holds."""
    reply = gateway.chat("plain", SUM, {"x-lowpass-budget-usd": "0.0001"})
    row = gateway.settled(reply.id)
    assert (reply.status, row["target"], row["cost"]) == (200, "cheap", CHEAP_NANO)
    assert 0 < row["held"] <= 100_000


def test_a_session_stays_where_it_is_while_others_are_hardly_better(gateway: Gateway) -> None:
    """Another session, and a route that is not sticky, go where it is a trifle better."""
    assert model(ask(gateway, "twin", SUM, session="s")) == "twin"
    kept = ask(gateway, "sticky", school.product(32, 57), session="s")
    assert (model(kept), school.weighed(gateway, kept)["twin"]["why"]) == ("twin", "kept")
    assert model(ask(gateway, "sticky", school.product(33, 57), session="t")) == "cheap"
    assert model(ask(gateway, "loose", school.product(34, 57), session="s")) == "cheap"


@pytest.fixture(scope="module")
def paced(served: Gateway, upstream_server: School) -> Gateway:
    """It knows how long they take: while the slow one answers, 20 s pass."""

    def slowly(body: dict[str, Any]) -> str:
        served.let_pass(20)
        return school.able(body)

    def known() -> bool:
        for number, name in enumerate(("slow", "quick")):
            assert served.chat(name, school.product(number + 11, 47), stream=True, max_tokens=MOST).status == 200
        times = {row["target"]: row["total_ms"] for row in school.would(served, "no-hurry", SUM)["weighed"]}
        return bool(times["quick"] < 5_000 < 15_000 < times["slow"])

    upstream_server.pupils["slow"].says = slowly
    until(known)
    return served


@each_row("route, headers, target", data(__file__, "hurries.yaml"))
def test_a_target_that_is_too_slow_is_not_asked(paced: Gateway, route: str, headers: Headers, target: str) -> None:
    reply = ask(paced, route, school.product(21, 43), **headers)
    assert model(reply) == paced.settled(reply.id)["attempts"][-1]["target"] == target
    if route != "planned":
        assert school.weighed(paced, reply)["slow"]["why"] == ("chosen" if target == "slow" else "too_slow")


# What one gateway learns all of them know, and a crash, a restart or another policy does not take it away.


def check(gateway: Client, texts: list[str]) -> None:
    """The cheap one is asked, a verifier says what its answers are worth, and that has been learned."""
    before = school.learned(gateway)
    with ThreadPoolExecutor(8) as crowd:
        list(crowd.map(lambda text: ask(gateway, "checked-alone", text), texts))
    until(lambda: school.learned(gateway) >= before + len(texts))


def sums(number: int = FEW) -> list[str]:
    """The cheap one gets them all wrong; houses right."""
    return [school.product(11 + at, 23) for at in range(number)]


def houses(number: int) -> list[str]:
    return [school.house(11 + at) for at in range(number)]


def feedback(gateway: Client, **body: Any) -> int:
    return gateway.post("/v1/feedback", body).status


def expects(gateway: Client) -> float:
    """How likely it is that the cheap one gets a sum right."""
    weighed = school.would(gateway, "told", school.product(91, 67))["weighed"]
    return float({row["target"]: row["p"] for row in weighed}["cheap"])


def considered(gateway: Client, more: str = "") -> dict[str, Any]:
    """The estimate of an answer to a sum: `output_tokens` as those before had them, `hold_usd` with room for more."""
    body = {"model": "checked-alone", "messages": user(school.product(91, 67) + more)}
    return dict(gateway.post("/v1/route", body).json["considered"][0])


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_two_gateways_learn_from_each_other(
    tmp_path: Path, upstream: School, store: str, request: pytest.FixtureRequest
) -> None:
    """On one database; in SQLite they share a folder, each with its own port. One that starts later knows as much."""
    environ, homes = {}, (tmp_path / "one", tmp_path / "one")
    if store == "postgres":
        database: Server = request.getfixturevalue("postgres")
        environ, homes = {"LOWPASS_DATABASE_URL": database.database()}, (tmp_path / "one", tmp_path / "two")
    rules = policy(upstream.url)
    with serving(homes[0], rules, environ) as one, serving(homes[1], rules, environ) as two:
        before, read = expects(two), considered(two)
        assert before == pytest.approx(expects(one))
        check(one, sums())
        more = " please" * 400
        for text in sums():  # of which each gateway learns its own before the other's
            ask(two, "checked-alone", text + more)
        with serving(homes[1], rules, environ) as three:
            for gateway in 6 * (one, two, three):
                gateway.tick()
            assert read != considered(one) == considered(two) == considered(three)
            assert considered(one, more) == considered(two, more) == considered(three, more)
        until(lambda: school.learned(two) >= FEW)
        assert expects(two) == pytest.approx(expects(one), abs=0.001)
        assert expects(two) < before - 0.2


def test_workers_learn_from_each_other(tmp_path: Path, upstream: School) -> None:
    """Whichever of them answers, all of them have learned it."""
    with processing(tmp_path, policy(upstream.url), {"LOWPASS_WORKERS": "2"}) as gateway:
        before = expects(gateway)
        check(gateway, sums())
        until(lambda: max(expects(gateway) for _ in range(12)) < before - 0.2)
        assert school.learned(gateway) == FEW, "what all have read counts once"


def test_a_crash_forgets_nothing(tmp_path: Path, upstream: School) -> None:
    """At the end of its life a gateway saves what it knows; what comes after that, before a crash, is in the log."""
    with processing(tmp_path, policy(upstream.url)) as gateway:
        before, read = expects(gateway), considered(gateway)["output_tokens"]
        check(gateway, sums())
        saved = expects(gateway)
        answer = until(lambda: (tokens := considered(gateway)["output_tokens"]) < 0.3 * read and tokens)
        assert gateway.stop() == 0
        assert len(gateway.rows("SELECT * FROM posteriors")) == 1
        gateway.start()
        assert before > saved == pytest.approx(expects(gateway), abs=0.001)
        assert considered(gateway)["output_tokens"] == pytest.approx(answer, rel=0.1, abs=1)
        assert school.learned(gateway) == 0, "it had to read anew what was saved"
        check(gateway, sums())
        known = expects(gateway)
        assert known < saved
        gateway.kill()
        gateway.start()
        until(lambda: school.learned(gateway) >= FEW)
        assert school.learned(gateway) == FEW, "only what had not been saved"
        assert expects(gateway) == pytest.approx(known, abs=0.001)


def test_another_policy_forgets_nothing(tmp_path: Path, upstream: School) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        check(gateway, sums())
        known = expects(gateway)
        rules = policy(upstream.url)
        rules["routes"]["another"] = ordered("dear")
        gateway.write_policy(rules)
        gateway.tick()
        assert "another" in [card["id"] for card in gateway.get("/v1/models").json["data"]]
        assert expects(gateway) == pytest.approx(known, abs=0.001)
        check(gateway, sums(1))


def test_one_answer_judged_under_many_names_counts_twice_at_most(tmp_path: Path, upstream: School) -> None:
    names: list[dict[str, str]] = [{}, *({"source": f"bot-{number}"} for number in range(20)), {}]
    with serving(tmp_path, policy(upstream.url)) as gateway:
        mine = ask(gateway, "told", school.house(14)).id
        assert {feedback(gateway, id=mine, passed=False, **name) for name in names} == {200}
        rows = gateway.rows("SELECT weight, was_weight FROM outcomes ORDER BY position")
    assert [row["weight"] for row in rows[:3]] == [1, 0.5, 0.25]
    assert sum(row["weight"] - row["was_weight"] for row in rows) <= 2


def test_what_was_said_and_taken_back_leaves_no_trace(tmp_path: Path, upstream: School) -> None:
    rates = []
    for verdicts in ([False, True], [True]):
        with serving(tmp_path / str(len(verdicts)), policy(upstream.url)) as gateway:
            ids = [ask(gateway, "told", text).id for text in sums(6)]
            for passed in verdicts:
                for request in ids:
                    feedback(gateway, id=request, passed=passed)
            until(lambda: school.learned(gateway) >= 6 * len(verdicts))  # noqa: B023
            rates.append(expects(gateway))
    assert rates[0] == pytest.approx(rates[1], abs=0.01)


CHANGES: dict[str, tuple[int, int, dict[str, Any], str, float]] = {
    "another model": (60, 1, {"name": "cheap-2"}, "model was cheap, is cheap-2", 1.02),
    "worse answers": (140, 40, {"says": lambda body: "The answer is 7."}, "pass_rate was ", 1.1),
}


@each_row("change", CHANGES)
def test_an_upstream_that_changes_raises_an_alarm(tmp_path: Path, change: str) -> None:
    before, after, fields, reason, wider = CHANGES[change]
    with (
        school.schooling(cheap=Pupil(school.able), dear=Pupil(school.able)) as own,
        serving(tmp_path, policy(own.url)) as gateway,
    ):

        def spread() -> float:
            return float(school.weighed(gateway, ask(gateway, "told", school.house(91)))["cheap"]["p_sd"])

        check(gateway, houses(before))
        narrow = spread()
        own.pupils["cheap"] = Pupil(**{"says": school.able, **fields})
        check(gateway, houses(after))
        (row,) = until(lambda: gateway.rows("SELECT subject, scope, reason FROM incidents WHERE kind = 'drift'"))
        assert (row["subject"], row["scope"]) == ("cheap", "target")
        assert row["reason"].startswith(reason)
        assert school.metric(gateway, "lowpass_drift_alarms_total", target="cheap") == 1
        assert spread() > wider * narrow
        assert "drift" in gateway.lowpass("report", "incidents")[1]
        assert "cheap is not what it was" in gateway.log.read_text()


def test_a_template_is_learned_by_itself_and_reported(tmp_path: Path) -> None:
    """Two applications send the same sums, and only one says that the answers are wrong: the other hears less of it."""
    with server() as upstream, serving(tmp_path, policy(upstream.url)) as gateway:

        def rates(app: str) -> float:
            document = school.would(gateway, "told", school.product(91, 67), x_lowpass_app=app)
            assert like_it in document["reason"]
            return sum(float(row["p"]) for row in document["weighed"])

        like_it = "no answers like it yet: "
        assert rates("desk") == pytest.approx(rates("news"))
        for at in range(FEW):
            reply = gateway.chat("told", school.product(11 + at, 23), {"x-lowpass-app": "desk"}, max_tokens=MOST)
            assert feedback(gateway, id=reply.id, passed=False) == 200
        until(lambda: school.learned(gateway) >= FEW)
        like_it = f"{FEW} answers like it"  # of the other's template there are none, so those of its task
        assert rates("desk") < rates("news") - 0.02
        body = {"model": "told", "messages": user(school.product(91, 67)), "max_tokens": MOST}
        for app in ("desk", "news"):
            document = explained(gateway, body, "--header", f"x-lowpass-app: {app}")[0]
            told = sum(row["p"] for row in document["weighed"])
            until(lambda: told == pytest.approx(rates(app), abs=0.002))  # noqa: B023  its forecasts are kept for a while
        (template,) = gateway.rows("SELECT DISTINCT template FROM requests WHERE app = 'desk'")
        assert gateway.rows("SELECT DISTINCT app, template FROM outcomes") == [{"app": "desk", **template}]
        again = gateway.chat("told", school.product(71, 23), {"x-lowpass-app": "desk"}, max_tokens=MOST)
        decision = gateway.get(f"/v1/decisions/{again.id}").json
        shown = decision["classification"]
        assert (shown["app"], shown["template"], decision["alike"]) == ("desk", template["template"], FEW)
        own = [row["target"] for row in gateway.rows("SELECT target FROM outcomes")].count(decision["chosen"])
        of_chosen = f", {own or 'none'} of {decision['chosen']}" if own < FEW else ""
        assert f"{like_it}{of_chosen}: {decision['chosen']} passes ." in decision["reason"]
        report = gateway.get("/v1/reports/cost-of-pass?by=app,template&format=json").json
        assert [(row["app"], row["template"]) for row in report["rows"]] == [("desk", template["template"])]
