"""An upstream of pupils: the model's name says who answers, and a test says what each of them makes of a question."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from router.testing.upstream import Answer, Ask, Behaviour, Page, Recorded, Tokens, Upstream
from tests.gateway.running import Client, Reply, local, target, user

Target = Callable[..., dict[str, Any]]
WORDS = re.compile(r"\S+\s*")
INPUT, OUTPUT = 20, 10
"""Tokens of every question, but for one each time it pleads, and of every answer."""
MOST = 16
"""Tokens of an answer that is asked for, so that its cost is known beforehand."""
VERIFIER = "verify"
"""The pupil that is asked at `/verify`, as a verifier is: `says` is the whole of its answer."""


class Pupil(Struct):
    """`says`: the whole body of a request → the text of the answer."""

    says: Callable[[dict[str, Any]], str]
    name: str = ""
    """The model that it says it is, if not the one that was asked for."""
    slow_s: float = 0.0
    status: int = 200


class School(Upstream):
    """`asked` are pupil and body of each request, in order; `keys` what they were authorised by."""

    def __init__(self, pupils: dict[str, Pupil]) -> None:
        super().__init__()
        self.pupils = pupils

    @property
    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        return [(body.get("model", VERIFIER), body) for body in (request.json for request in self.requests)]

    @property
    def keys(self) -> set[str]:
        return {request.headers.get("authorization", "") for request in self.requests}

    def of(self, pupil: str) -> list[dict[str, Any]]:
        return [body for name, body in self.asked if name == pupil]

    def page(self, request: Recorded) -> Page | None:
        if request.path == f"/{VERIFIER}":
            pupil = self.pupils[VERIFIER]
            return Page((pupil.says(request.json).encode(),), pupil.status)
        status = self.pupils[request.json["model"]].status
        return None if status == 200 else Page((b'{"error": {"message": "no", "type": "server_error"}}',), status)

    def behaviour(self, ask: Ask) -> Behaviour:
        pupil = self.pupils[ask.behaviour]
        answer = Answer(text=tuple(WORDS.findall(pupil.says(ask.body))))
        sent, served = INPUT + question(ask.body).count("please "), pupil.name or ask.behaviour
        tokens = Tokens(uncached=sent, visible=OUTPUT, reasoning=None)
        return Behaviour(answer=lambda *_: answer, tokens=tokens, delay_s=pupil.slow_s, served=served)


def question(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def schooling(**pupils: Pupil) -> School:
    return School(pupils)


CHEAP = {"input": 0.1, "output": 0.2}
DEAR = {"input": 20, "output": 40}
"""USD per million tokens."""
CHEAP_NANO = INPUT * 100 + OUTPUT * 200
DEAR_NANO = INPUT * 20_000 + OUTPUT * 40_000


def seat(
    url: str, pupil: str, price: Mapping[str, float], score: float, make: Target = target, **row: Any
) -> dict[str, Any]:
    """A remote target. `score`: what a public benchmark says of it."""
    made = make(url, pupil, price=price, **row)
    return {**made, "model": {**made["model"], "scores": {"mmlu_pro": score}}}


at_home = partial(seat, make=local)
"""The same on the user's own machine."""


def cost_of_pass(*names: str, **more: Any) -> dict[str, Any]:
    strategy: dict[str, Any] = {"kind": "cost_of_pass", "targets": list(names)}
    strategy |= {name: more.pop(name) for name in ("caution", "sticky") if name in more}
    return {"strategy": strategy, "failure_cost_usd": 0.0025, "exploration": {"share": 0}, **more}


def ask(gateway: Client, route: str, text: str, headers: Mapping[str, str] | None = None, **body: Any) -> Reply:
    """A right answer is known; a request is served."""
    reply = gateway.chat(route, text, headers, metadata={"expected": expected(text)}, max_tokens=MOST, **body)
    assert reply.status == 200, reply.body
    return reply


def would(gateway: Client, route: str, text: str, **headers: str) -> dict[str, Any]:
    """What is decided of it, without asking a target."""
    return gateway.post("/v1/route", {"model": route, "messages": user(text), "max_tokens": MOST}, **headers).json


def product(one: int, other: int) -> str:
    return f"Compute the product of {one} and {other}."


def house(number: int) -> str:
    return f"Translate into French: the house with the number {number} is red."


def expected(text: str) -> str:
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    return str(numbers[0] * numbers[1] if "product" in text else numbers[0])


def able(body: dict[str, Any]) -> str:
    return f"The answer is {expected(question(body))}."


def weak(body: dict[str, Any]) -> str:
    """Wrong at maths, right at translations."""
    return "The answer is 7." if "product" in question(body) else able(body)


def learned(gateway: Client) -> float:
    """Outcomes that this gateway has learned from."""
    return metric(gateway, "lowpass_outcomes_total", result="learned")


def metric(gateway: Client, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(gateway.get("/metrics").body.decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def decision(gateway: Client, reply: Reply) -> dict[str, Any]:
    return gateway.get(f"/v1/decisions/{reply.headers['x-request-id']}").json


def weighed(gateway: Client, reply: Reply) -> dict[str, dict[str, Any]]:
    """What its decision expected of each target."""
    return {row["target"]: row for row in decision(gateway, reply)["weighed"]}


def text_of(reply: Reply) -> str:
    return str(reply.json["choices"][0]["message"]["content"])
