"""A conversation that goes on is cheaper where it was answered, so it stays there while nothing else is gained."""

from pathlib import Path

from router.testing.upstream import Answer, Ask, Behaviour, Tokens, Upstream
from tests.gateway.running import serving, target

TEXT = "word " * 4_000
PRICE = {"input": 1, "output": 1, "cache_read": 0.1}


class Keeping(Upstream):
    """Counts a token for each word."""

    def behaviour(self, ask: Ask) -> Behaviour:
        words = sum(len(message["content"].split()) for message in ask.body["messages"])
        return Behaviour(answer=lambda *_: Answer(text=("Yes.",)), tokens=Tokens(uncached=words, visible=1))


def test_a_long_conversation_stays_where_it_is_warm_and_another_does_not(tmp_path: Path) -> None:
    with Keeping() as upstream:
        targets = {name: target(upstream.url, name, price=PRICE) for name in ("first", "second")}
        routes = {"auto": {"strategy": {"kind": "cheapest", "targets": list(targets)}}}
        with serving(tmp_path, {"version": 1, "targets": targets, "routes": routes}) as gateway:
            for name in targets:  # so that as much is known of one as of the other
                assert gateway.chat(name, "word " * 10).status == 200
            gateway.chat("second", TEXT, {"x-lowpass-session": "talk"})
            for session, expected in (("talk", "second"), ("another", "first")):
                reply = gateway.chat("auto", TEXT, {"x-lowpass-session": session})
                assert gateway.settled(reply.id)["target"] == expected
            talk = [{"role": "user", "content": TEXT}, {"role": "user", "content": "And now?"}]
            shown = gateway.post("/v1/route", {"model": "auto", "messages": talk}, x_lowpass_session="talk").json
            cost = {row["target"]: float(row["cost_usd"]) for row in shown["considered"]}
            assert cost["second"] < cost["first"] * 0.6
