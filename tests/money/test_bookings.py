"""`lowpass ledger verify` names each charged request that is not booked where the budgets of its policy want it."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from router.ledger.ledger import ledger_at
from router.testing.upstream import Upstream
from router.types.target import Secret
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Gateway, ordered, target
from tests.gateway.test_keys import bearer, create
from tests.money.books import change
from tests.postgres import Server
from tests.tables import each_row

SCOPES = {"month": "all", "per-key": "key", "per-team": "team", "per-tag": "tag", "per-target": "target"}


def policy(url: str, *more: dict[str, Any]) -> dict[str, Any]:
    budgets: list[dict[str, Any]] = [{"id": name, "limit_usd": 5, "scope": scope} for name, scope in SCOPES.items()]
    budgets += [{"id": "mine", "limit_usd": 5, "scope": "session"}, {"id": "ops", "limit_usd": 5, "teams": ["ops"]}]
    targets = {"down": target(url, "status-500"), "cheap": target(url, "normal")}
    routes = {"auto": ordered("down", "cheap")}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": [*budgets, *more]}


def ask(gateway: Gateway, **headers: str) -> str:
    """The id of a request that was answered and charged."""
    reply = gateway.chat("auto", headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert reply.status == 200, reply.body
    return reply.id


def unbooked(gateway: Gateway, *options: str) -> set[tuple[str, str]]:
    """Requests, and accounts in which they should be booked."""
    status, output = gateway.lowpass("ledger", "verify", *options)
    lines = [line for line in output.splitlines() if ", and not booked in " in line]
    assert status or not lines, output
    return {(line.split()[1].rstrip(":"), line.split()[-1]) for line in lines}


@each_row("places", [(), ("redis",), ("postgres",), ("postgres", "redis")])
def test_a_booking_that_is_gone_is_told_wherever_it_was(
    tmp_path: Path, upstream: Upstream, postgres: Server, places: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        environ = {}
        if "redis" in places:
            environ["LOWPASS_REDIS_URL"] = stack.enter_context(RedisProcess()).url.reveal()
        if "postgres" in places:
            environ["LOWPASS_DATABASE_URL"] = postgres.empty()
        gateway = stack.enter_context(Gateway(tmp_path / "home", policy(upstream.url), environ))
        open_to_all = ask(gateway)
        assert "--new-tag" in gateway.lowpass("keys", "create", "ann", "--tag", "a")[1], "no budget has that tag"
        key = bearer(create(gateway, "ann", "--team", "web", "--new-tag", "a", "--limit-usd", "9", "--rpm", "100"))
        whole = ask(gateway, **key, x_lowpass_tags="b", x_lowpass_session="s1")
        part = gateway.post("/v1/budgets/month/split", {"limit_usd": 1}, **key).json["id"]
        ask(gateway, **key, x_lowpass_budget=part)
        gateway.write_policy(policy(upstream.url, {"id": "new", "limit_usd": 5}))
        gateway.tick()
        late = ask(gateway, **key)
        assert gateway.lowpass("ledger", "verify")[0] == 0, "none is booked in a budget that came later"
        url = environ.get("LOWPASS_DATABASE_URL")
        ledger = ledger_at(gateway.ledger, Secret(url) if url and "redis" in places else None)
        with ledger.writing() as connection:
            connection.execute("DELETE FROM bookings WHERE request_id IN (?, ?)", (open_to_all, whole))
            connection.execute("DELETE FROM bookings WHERE request_id = ? AND account = 'new'", (late,))
        of_all = {"month", "per-target|cheap"}
        of_key = {*of_all, "per-key|ann", "per-team|web", "per-tag|a", "per-tag|b", "mine|s1", "key.limit|ann"}
        expected = {(open_to_all, name) for name in {*of_all, "per-key|", "per-team|"}}
        assert unbooked(gateway) == expected | {(whole, name) for name in of_key} | {(late, "new")}


def test_where_a_request_should_be_booked_is_said_by_what_is_known(tmp_path: Path, upstream: Upstream) -> None:
    """A key before it was changed may have been of another team; a policy of an older lowpass has no budgets."""
    with Gateway(tmp_path / "home", policy(upstream.url)) as gateway:
        root, key = (bearer(create(gateway, *words.split())) for words in ("root --scope admin", "ann --team web"))
        request_id = ask(gateway, **key)
        assert gateway.request("PATCH", "/v1/keys/ann", b'{"team": "ops"}', root).status == 200
        assert gateway.lowpass("ledger", "upkeep")[0] == 0
        assert gateway.lowpass("ledger", "verify")[0] == 0
        change(gateway, "DELETE FROM past_bookings")
        gone = {(request_id, name) for name in ("month", "per-target|cheap", "per-key|ann")}
        assert unbooked(gateway) == gone
        change(gateway, "UPDATE policies SET document = json_remove(document, '$.budgets')")
        other = tmp_path / "other.yaml"
        other.write_text(f"{gateway.policy.read_text()}\n# edited")
        known = [unbooked(gateway, *options) for options in ((), ("--policy", str(other)))]
        assert (known, unbooked(gateway, "--policy", str(gateway.policy))) == ([set(), set()], gone)
