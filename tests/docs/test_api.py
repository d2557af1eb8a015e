"""docs/api.md and docs/metrics.md against the source and a running gateway."""

import ast
import re
from collections.abc import Iterator

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.api.edge import ALIVE, READY
from router.api.hot import PATHS
from router.api.text import Chat, Completion, EmbeddingFields
from router.settings import SHIPPED_POLICY
from tests.docs import ROOT, page, quoted, rows
from tests.gateway.running import MESSAGES, Gateway
from tests.tables import each_row

TEXT = page("docs/api.md")
REQUEST_HEADERS = {row["header"] for row in rows(TEXT, "header", "value", "effect")}
ANSWER_HEADERS = {row["header"] for row in rows(TEXT, "header", "value")} - REQUEST_HEADERS
NAMED = re.compile(r"(x(-[a-z]+)+|retry-after|www-authenticate)")
UNUSED = {"dimensions", "suffix", "user"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Under the shipped policy, with its engine, for all that only ask."""
    with Gateway(tmp_path_factory.mktemp("lowpass"), SHIPPED_POLICY.read_text()) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with gateway.client() as client:
        yield client


def test_endpoints() -> None:
    documented = {row["endpoint"] for row in rows(TEXT, "endpoint")}
    assert documented == {f"POST {path}" for path in PATHS} | {f"GET {ALIVE}", f"GET {READY}"} | _routes()


def test_request_headers(client: openai.OpenAI) -> None:
    """A gateway that is sent an unknown header names all that it knows."""
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="auto", messages=MESSAGES, extra_headers={"x-lowpass-unheard-of": "1"})
    assert set(re.findall(r"x-lowpass-[a-z-]+(?=[,.])", refused.value.message)) == REQUEST_HEADERS


def test_answer_headers_are_all_in_the_source() -> None:
    constants = [node.value for node in nodes("router") if isinstance(node, ast.Constant)]
    texts = [value.decode("latin-1") if isinstance(value, bytes) else value for value in constants]
    named = {text for text in texts if isinstance(text, str) and NAMED.fullmatch(text)}
    assert named - REQUEST_HEADERS - {"x-api-key"} == ANSWER_HEADERS


def test_answers_carry_documented_headers(client: openai.OpenAI) -> None:
    """Each header on a whole answer or on a stream is documented; of our own, all are seen."""
    create = client.chat.completions.with_raw_response.create
    whole = create(model="auto", messages=MESSAGES, max_tokens=8)
    stream = create(model="auto", messages=MESSAGES, max_tokens=8, stream=True)
    sent = {name for answer in (whole, stream) for name in answer.headers if name.startswith("x-")}
    assert sent <= ANSWER_HEADERS
    now_and_then = {f"x-lowpass-{name}" for name in ("dropped", "loop", "lowered", "spilled")}
    assert {name for name in ANSWER_HEADERS if name.startswith("x-lowpass-")} - now_and_then <= sent


def test_metrics(client: openai.OpenAI, gateway: Gateway) -> None:
    client.chat.completions.create(model="auto", messages=MESSAGES, max_tokens=8)
    families = list(text_string_to_metric_families(gateway.get("/metrics").body.decode()))
    served = {
        (family.name if family.type == "histogram" else sample.name, family.type, frozenset(sample.labels) - {"le"})
        for family in families
        for sample in family.samples
    }
    documented = {
        (row["metric"], row["type"], frozenset(filter(None, re.split(r",\s*", row["labels"]))))
        for row in rows(page("docs/metrics.md"), "metric")
    }
    assert served <= documented
    # What was never counted has no labels yet.
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert {name for name, _, _ in documented} == names


def test_fields_of_a_body_that_are_read() -> None:
    """The shapes into which bodies are decoded have no field that the page leaves out, but for what nothing uses."""
    section = TEXT.partition("## What is read in a body")[2].partition("## Answers")[0]
    fields = {name for kind in (Chat, Completion, EmbeddingFields) for name in kind.__struct_fields__}
    assert fields - UNUSED <= {word.split(".")[0] for word in quoted(section)}


@each_row("endpoint", [row["endpoint"] for row in rows(TEXT, "endpoint")])
def test_endpoints_are_served(endpoint: str, gateway: Gateway) -> None:
    """Something answers there: an empty body or an unknown name is refused for what it is."""
    method, path = endpoint.split()
    reply = gateway.request(method, re.sub(r"{\w+}", "nobody", path), b"{}" if method == "POST" else None)
    assert b"does not serve" not in reply.body


def nodes(folder: str) -> Iterator[ast.AST]:
    for path in (ROOT / folder).rglob("*.py"):
        yield from ast.walk(ast.parse(path.read_text("utf-8")))


def _routes() -> set[str]:
    """`@router.get("/path")` and `add_api_route` in the HTTP edge."""
    routes = set()
    for node in nodes("router/api"):
        for call in getattr(node, "decorator_list", ()):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
                routes.add(f"{call.func.attr.upper()} {ast.literal_eval(call.args[0]).replace(':path}', '}')}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_api_route":
            methods = ast.literal_eval(node.keywords[0].value) if node.keywords else ["GET"]
            routes.add(f"{methods[0]} {ast.literal_eval(node.args[0]).replace(':path}', '}')}")
    return routes
