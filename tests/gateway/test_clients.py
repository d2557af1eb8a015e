"""Clients that leave, stall, or speak HTTP oddly: each whole request gets its own answer, and nothing hangs.

A strange case is a seed: up to four requests on a connection, of which the last may be none, or only a part of one.
Each has a word of its own, which the upstream repeats.
"""

import asyncio
import json
import random
import re
import resource
import socket
import struct
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from anyio.to_thread import current_default_thread_limiter

from router.api.edge import LIMIT_S, MOST_AHEAD
from router.testing.upstream import Answer, Ask, Behaviour, Page, Tokens, Upstream
from tests.gateway.running import CHAT, Gateway, local, ordered, processing, target, tried, until, user
from tests.tables import each_row

WORD = re.compile(rb"word-\d+-\d+")
LONGEST_S = max(LIMIT_S.values()) + 1
BATCH = 250
"""Cases whose connections are open at the same time."""
RESETS = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
"""An option: closing the socket does not say goodbye."""
WAYS = ("close", "reset", "ahead")
HANGS = {"first": "hang", "middle": "hang-after-first", "whole": "hang"}


class Echo(Upstream):
    """Repeats the prompt, where the model's name says nothing else."""

    def behaviour(self, ask: Ask) -> Behaviour:
        prompt = ask.body["messages"][-1]["content"]
        text = ("x" * 65_536,) * 200 if prompt == "at length" else (prompt,)
        echo = Behaviour(answer=lambda *_: Answer(text=text), tokens=Tokens(uncached=2, visible=1))
        return super().behaviour(ask) or echo


server = Echo


def policy(url: str) -> dict[str, Any]:
    targets = {"echo": local(url, "x", context=10_000_000, max_output=9_000_000)}
    targets["slow"] = target(url, "say-4-ms-500")
    targets["pausing"] = target(url, "later", retries=5)
    routes = {"auto": ordered("echo"), "r-pausing": ordered("pausing")}
    for name in (f"{kind}-{way}" for kind in HANGS for way in WAYS):
        targets[name] = target(url, f"{HANGS[name.partition('-')[0]]}@{name}", abandoned="cancel")
        routes[f"r-{name}"] = ordered(name, "echo")
    budgets = [{"id": "all", "limit_usd": 1_000_000}]
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def lines(*rows: bytes) -> bytes:
    return b"".join(row + b"\r\n" for row in (*rows, b""))


def asked(word: str, model: str = "auto", **more: Any) -> bytes:
    return json.dumps({"model": model, "messages": user(word), **more}).encode()


def plain(body: bytes, length: int = 0) -> bytes:
    """A request that says how long it is."""
    start = b"POST %b HTTP/1.1" % CHAT.encode()
    return lines(start, b"host: localhost", b"content-length: %d" % (length or len(body))) + body


def chunked(draw: random.Random, body: bytes) -> bytes:
    cut = sorted(draw.sample(range(1, len(body)), draw.randrange(4)))
    extension = draw.choice([b"", b";a", b";a=b", b';a="b;c"'])
    parts = [body[a:b] for a, b in zip([0, *cut], [*cut, len(body)], strict=True)]
    trailers = draw.choice([[], [b"x-checksum: 1"], [b"authorization: Bearer odd", b"x-lowpass-odd: 1"]])
    return b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in parts) + b"0\r\n" + lines(*trailers)


def request(draw: random.Random, word: str, *rows: bytes, odd: bool = False) -> bytes:
    """Whole and sound. `odd`: as few clients write it, but as they may."""
    body, host, start = asked(word, stream=draw.random() < 0.3), b"host: localhost", b"POST %b HTTP/1.1" % CHAT.encode()
    framing = [b"content-length: %d" % len(body)]
    if odd:
        host = draw.choice([b"Host:localhost", b"HOST: \t localhost:80 ", b"host: [::1]:80", b"host:"])
        place = draw.choice([b"http://x%b", b"%b?a=b", b"%b"]) % CHAT.encode()
        start = draw.choice([b"", b"\r\n\r\n"]) + b"POST %b HTTP/1.1" % place
        upgrade = [b"connection: upgrade, http2-settings", b"upgrade: h2c", b"http2-settings: AAMAAABkAAQ"]
        others = [b"connection: keep-alive", b"accept:", b"x_under: \xe4"]
        framing += draw.choice([upgrade, others, [b"x-long: " + b"y" * 60_000], [b"x-many: "] * 240])
    if draw.random() < 0.3:
        framing[0], body = b"Transfer-Encoding: Chunked", chunked(draw, body)
    return lines(start, host, b"x-lowpass-tags: " + word.encode(), *framing, *rows) + body


def refused(draw: random.Random, word: str) -> bytes:
    """Sound HTTP, but nothing that lowpass serves."""
    body = asked(word)
    bodies = [body[: draw.randrange(len(body))], b"[" * 1_000, b"null", b"\xff", body.replace(b"auto", b"nobody"), b""]
    start = draw.choice([b"POST /v1/nowhere", b"PUT " + CHAT.encode(), b"OPTIONS *"])
    if draw.random() < 0.7:
        start, body = b"POST " + CHAT.encode(), draw.choice(bodies)
    return lines(start + b" HTTP/1.1", b"host: localhost", b"content-length: %d" % len(body)) + body


def swap(was: bytes, now: bytes, form: bytes = b"%b") -> Callable[[random.Random, bytes], bytes]:
    """`now`: what may stand there instead, with bars between; `form` is around each."""
    return lambda draw, whole: whole.replace(was, form % draw.choice(now.split(b"|")), 1)


HOST, MORE = b"host: localhost\r\n", b"host: localhost\r\n%b\r\n"
UNSOUND = (
    swap(HOST, HOST * 2 + b"||host: x, y /\r\n|host: x/y\r\n|host: \xe4\r\n|host: localhost\n|host: localhost\n\r\n"),
    swap(HOST, b"5|-1|+5|5, 5||" + b"9" * 30, b"host: localhost\r\ncontent-length: %b\r\n"),
    swap(HOST, b"identity|gzip|xchunked|chunked\r\ncontent-length: 5", b"host: localhost\r\ntransfer-encoding: %b\r\n"),
    swap(HOST, b"a b: c|: c|a : c|abc|a\0: c|\xe4: c|a: b\r\n c|a: b\r\n\tc|a: \0|a: \x01|a: \x7f|a: b\rc", MORE),
    swap(HOST, b"a: " + b"b" * 70_000 + b"|" + b"a:b\r\n" * 300 + b"|a: " + b"b" * 400_000, MORE),
    swap(b"HTTP/1.1", b"HTTP/0.9|HTTP/1.2|HTTP/2.0|HTTP/9|http/1.1|"),
    swap(b"POST", b"post|P\0ST|BREW|CONNECT||PRI|\x16\x03\x01\x02"),
    swap(b" /v1", b" v1| /\xff| /\0| /a b| x:1| http://| http:///| /" + b"a" * 70_000),
    lambda _, whole: whole.replace(b"\r\n", b"\n"),
    lambda *_: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    lambda draw, _: draw.randbytes(draw.randrange(20, 400)).replace(b"\n", b"") + b"\r\n\r\n",
)
CHUNKS = [
    *b"zz\r\n|-1\r\n|0x1\r\n|1 \r\nx\r\n|1\nx\n|2\r\nabc\r\n|1;a\nx\r\n|0\r\na b: c\r\n|fffffffffffffffff\r\n".split(
        b"|"
    ),
    *(b"1;" + b"e" * 400_000, b"0\r\n" + b"a: b\r\n" * 300 + b"\r", b"0\r\na: " + b"b" * 400_000),
]


def unsound(draw: random.Random, word: str) -> bytes:
    if draw.random() < 0.3:
        start = lines(b"POST %b HTTP/1.1" % CHAT.encode(), b"host: localhost", b"transfer-encoding: chunked")
        return start + draw.choice([b"", b"1\r\n{\r\n"]) + draw.choice(CHUNKS)
    return draw.choice(UNSOUND)(draw, request(draw, word))


class Case(NamedTuple):
    """A client sends pieces, then acts. `answers`: the word of a whole request, or "" where a refusal is due."""

    number: int
    pieces: list[bytes]
    answers: list[str]
    then: str
    cut: bool
    """The last request is not complete: a refusal may follow, once time has passed."""


def case(number: int) -> Case:
    draw = random.Random(number)  # noqa: S311 - a case
    words = [f"word-{number}-{place}" for place in range(draw.randrange(1, 5))]
    sent, answers = [], []
    for word in words[:-1]:
        sound = draw.random() < 0.7
        sent.append(request(draw, word, odd=draw.random() < 0.5) if sound else refused(draw, word))
        answers.append(word if sound else "")
    last, ending = words[-1], draw.choice(["sound", "unsound", "cut"])
    if ending == "sound":
        closing = draw.choice([b"connection: close", b"expect: 100-continue", b"Connection: Close, x"])
        surplus = draw.choice([b"", b"", b"odd", b"\r\n", request(draw, "word-0-0")])
        sent.append(request(draw, last, closing, odd=draw.random() < 0.3) + surplus)
        answers.append(last)
    elif ending == "unsound":
        sent.append(unsound(draw, last) + draw.choice([b"", b"odd", request(draw, "word-0-0")]))
        answers.append("")
    else:
        whole = request(draw, last)
        sent.append(whole[: draw.randrange(len(whole))])
    data = b"".join(sent)
    then = draw.choice(["reads"] * 7 + ["closes", "resets", "half-closes"])
    if then in ("closes", "resets"):
        data = data[: draw.randrange(len(data) + 1)]
    ends = sorted({*(draw.randrange(len(data) + 1) for _ in range(draw.choice([0, 1, 5]))), len(data)})
    if draw.random() < 0.2:
        start = draw.randrange(len(data) + 1)
        ends = sorted({*range(start, min(start + 200, len(data))), len(data)})
    return Case(number, [data[a:b] for a, b in zip([0, *ends], ends, strict=False)], answers, then, ending == "cut")


def send(gateway: Gateway, case: Case) -> socket.socket:
    connection = gateway.raw()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(ConnectionError):
        for piece in case.pieces:
            connection.sendall(piece)
        if case.then == "half-closes":
            connection.shutdown(socket.SHUT_WR)
    if case.then == "resets":
        connection.setsockopt(*RESETS)
    if case.then in ("closes", "resets"):
        connection.close()
    return connection


def received(connection: socket.socket) -> bytes:
    """All until the gateway closes the connection; nothing where the client has."""
    data = b""
    with connection, suppress(ConnectionError):
        while connection.fileno() >= 0 and (piece := connection.recv(65_536)):
            data += piece
    return data


class Kept(BytesIO):
    """Responses one after the other: the end of one does not close it."""

    def close(self) -> None: ...


def replies(data: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each whole one."""
    file, whole = Kept(data), []
    with suppress(HTTPException):
        while file.tell() < len(data):
            response = HTTPResponse(SimpleNamespace(makefile=lambda _: file))  # type: ignore[arg-type]
            response.begin()
            whole.append((response.status, response.read()))
    return whole


def complaint(case: Case, data: bytes) -> str:
    """What the client would have to complain about."""
    got = replies(data)
    shown = f"case {case.number}: {case.then}, cut={case.cut}, {case.answers}: {[(s, b[-200:]) for s, b in got]}"
    whole = case.then == "reads"
    if len(got) < len(case.answers) * whole or len(got) > len(case.answers) + case.cut:
        return f"{shown}: {len(got)} answers"
    for (status, body), word in zip(got, [*case.answers, ""], strict=False):
        if set(WORD.findall(body)) != ({word.encode()} if word else set()):
            return f"{shown}: another's answer"
        if status != 200 if word else not (400 <= status < 500 and json.loads(body)["error"]["message"]):
            return f"{shown}: {status}"
    return ""


def played(gateway: Gateway, cases: list[Case]) -> list[str]:
    """Complaints of the clients, of which those that stall wait side by side."""
    with ThreadPoolExecutor(16) as pool:
        connections = list(pool.map(lambda case: send(gateway, case), cases))
        at_once = [not case.cut or case.then != "reads" for case in cases]
        data = list(pool.map(lambda now, open_: received(open_) if now else b"", at_once, connections))
        late = [pool.submit(received, open_) for now, open_ in zip(at_once, connections, strict=True) if not now]
        pass_until(gateway, lambda: all(future.done() for future in late))
    rest = iter(late)
    data = [kept if now else next(rest).result() for now, kept in zip(at_once, data, strict=True)]
    return [text for case, kept in zip(cases, data, strict=True) if (text := complaint(case, kept))]


def pass_until(gateway: Gateway, done: Callable[[], object]) -> None:
    """Lets time pass, so that limits are reached without waiting for them."""

    def look() -> object:
        if not done():
            gateway.let_pass(LONGEST_S)
        return done()

    until(look)


def connections(gateway: Gateway) -> int:
    """Those that clients have to it and that it holds a descriptor of."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening, nobodys = "0A", "0"
    ours = [row for row in rows if int(row[1][-4:], 16) == gateway.address[1] and row[3] != listening]
    return sum(row[9] != nobodys for row in ours)


@pytest.mark.parametrize("cases", [500, pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1_800)])])
def test_each_whole_request_gets_its_own_answer(gateway: Gateway, upstream: Upstream, cases: int) -> None:
    tasks = len(asyncio.all_tasks(gateway.loop))
    complaints = []
    for start in range(1, cases + 1, BATCH):
        complaints += played(gateway, [case(number) for number in range(start, min(start + BATCH, cases + 1))])
    assert not complaints, "\n".join([f"{len(complaints)} of {cases}", *complaints[:20]])
    until(lambda: gateway.get("/health/ready").json["in_flight"] == 0)
    rows = gateway.rows("SELECT tags, state, status, error FROM requests WHERE tags LIKE '%word-%'")
    ends = {(row["state"], row["status"], row["error"]) for row in rows}
    assert ends <= {("settled", 200, None), ("settled", 499, "client_gone"), ("released", 499, "client_gone")}
    assert max(Counter(row["tags"] for row in rows).values()) == 1, "a request has two rows"
    prompts = Counter(word for request in upstream.requests for word in WORD.findall(request.body))
    assert max(prompts.values()) == 1, "a request was asked twice"
    until(lambda: connections(gateway) == 0)
    until(lambda: len(asyncio.all_tasks(gateway.loop)) <= tasks)
    log = gateway.log.read_text()
    assert ("Traceback" in log, "ERROR" in log) == (False, False), log[-2_000:]


def sent(gateway: Gateway, data: bytes) -> list[tuple[int, bytes]]:
    """All answers until the connection is closed."""
    connection = send(gateway, Case(0, [data], [], "reads", cut=False))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(received, connection)
        pass_until(gateway, late.done)
    assert b"text/plain" not in late.result()
    return replies(late.result())


WHOLE = request(random.Random(0), "whole")  # noqa: S311
HEAD = WHOLE.partition(b"\r\n\r\n")[0] + b"\r\n"
REFUSED: list[tuple[bytes, int, str, str | None]] = [
    (HEAD.replace(HOST, b"") + b"\r\n", 400, "Send one header `host`.", "host"),
    (HEAD + HOST + b"\r\n", 400, "Send one header `host`.", "host"),
    (HEAD + b"authorization: a\r\nauthorization: b\r\n\r\n", 400, "Send one header `authorization`.", "authorization"),
    (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, "This is not HTTP/1.1.", None),
    (HEAD.replace(b"content-length", b"transfer-encoding") + b"\r\n", 400, "chunked", "transfer-encoding"),
    (HEAD.replace(b"1.1", b"2.0") + b"\r\n", 400, "not HTTP/2.0", None),
    (HEAD.replace(b"POST", b"CONNECT") + b"\r\n", 405, "no proxy", None),
    (HEAD + b"a: " + b"b" * 70_000 + b"\r\n\r\n", 431, "64 KiB", None),
    (HEAD + b"a: b\r\n" * 300, 431, "256 lines", None),
    (HEAD + b"a: " + b"b" * 1_000_000, 431, "64 KiB", None),
    (HEAD, 408, "within 10 s", None),
    (WHOLE[:-3], 408, "for 30 s", None),
]


@each_row("data, status, message, param", REFUSED)
def test_a_refusal_says_why(
    gateway: Gateway, upstream: Upstream, data: bytes, status: int, message: str, param: str | None
) -> None:
    ((got, body),) = sent(gateway, data.replace(b"whole", b"refused"))
    error = json.loads(body)["error"]
    assert (got, error["param"], message in error["message"]) == (status, param, True)
    assert upstream.requests == []
    assert gateway.rows("SELECT id FROM requests WHERE tags LIKE '%refused%'") == []


def test_only_so_many_requests_wait_on_a_connection(gateway: Gateway) -> None:
    statuses = [status for status, _ in sent(gateway, WHOLE * 100)]
    assert (set(statuses[:-1]), statuses[-1]) == ({200}, 400)
    assert MOST_AHEAD < len(statuses) < 100


@each_row("data", [b"", b"\r\n", lines(b"GET /health/live HTTP/1.1", b"host: localhost")])
def test_a_connection_without_a_request_is_closed(gateway: Gateway, data: bytes) -> None:
    assert sent(gateway, data) == [(200, b'{"status":"ok"}')] * (len(data) > 2)


@each_row("behind", [b"", WHOLE])
def test_a_client_that_does_not_read_is_not_waited_for(gateway: Gateway, upstream: Upstream, behind: bytes) -> None:
    with gateway.raw() as connection:
        connection.sendall(plain(asked("at length", stream=True)) + behind)
        until(lambda: upstream.requests)
        pass_until(gateway, lambda: upstream.last.ended.is_set())
        pass_until(gateway, lambda: connections(gateway) == 0)
    assert len(upstream.requests) == 1
    (row,) = gateway.rows("SELECT id FROM requests ORDER BY id DESC LIMIT 1")
    settled = gateway.settled(row["id"])
    assert (settled["status"], settled["error"]) == (499, "client_gone")


def test_one_address_does_not_shut_out_others(tmp_path: Path, upstream: Upstream) -> None:
    """Of 192 file descriptors 64 are for clients, and of those 48 for one address."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (192, usual[1]))
    try:
        with processing(tmp_path, policy(upstream.url)) as gateway:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
            opened = [socket.create_connection(gateway.address) for _ in range(150)]
            refused = HTTPResponse(opened[48])
            refused.begin()
            assert (refused.status, json.loads(refused.read())["error"]["code"]) == (429, "too_many_connections")
            with socket.create_connection(gateway.address, source_address=("127.0.0.2", 0)) as elsewhere:
                elsewhere.sendall(lines(b"GET /health/live HTTP/1.1", b"host: localhost"))
                assert elsewhere.recv(65_536).startswith(b"HTTP/1.1 200")
            for connection in opened:
                connection.close()
            until(lambda: gateway.request("GET", "/health/live").status == 200)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


def test_what_a_connection_keeps_is_little(gateway: Gateway) -> None:
    """Beside the bytes of its own request."""

    def resident_kib() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024

    before, opened = resident_kib(), [gateway.raw() for _ in range(300)]
    for number, connection in enumerate(opened):
        connection.sendall(lines(b"GET /health/live HTTP/1.1", b"host: localhost"))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        if number % 2:
            connection.sendall(HEAD + b"x-half: " + b"y" * 8_000)
    assert gateway.get("/health/ready").status == 200
    grown = resident_kib() - before
    for connection in opened:
        connection.close()
    assert grown < 32 * len(opened), f"{grown / len(opened)} KiB a connection"


def test_whether_it_lives_is_answered_without_a_thread(gateway: Gateway) -> None:
    """However many reports are being read."""

    async def busy() -> list[object]:
        threads, readers = current_default_thread_limiter(), [object() for _ in range(40)]
        for reader in readers:
            await threads.acquire_on_behalf_of(reader)
        return readers

    async def done(readers: list[object]) -> None:
        for reader in readers:
            current_default_thread_limiter().release_on_behalf_of(reader)

    readers = asyncio.run_coroutine_threadsafe(busy(), gateway.loop).result()
    alive = gateway.get("/health/live")
    asyncio.run_coroutine_threadsafe(done(readers), gateway.loop).result()
    assert (alive.status, alive.json) == (200, {"status": "ok"})


def asking(gateway: Gateway, model: str, *, stream: bool) -> socket.socket:
    connection = gateway.raw()
    connection.sendall(plain(asked("hello", model, stream=stream)))
    return connection


@each_row("way", WAYS)
@each_row("kind", HANGS)
def test_when_the_client_leaves_so_does_the_gateway(gateway: Gateway, upstream: Upstream, kind: str, way: str) -> None:
    name = f"{kind}-{way}"
    connection = asking(gateway, f"r-{name}", stream=kind != "whole")
    (request,) = until(lambda: [seen for seen in upstream.requests if seen.json["model"].endswith(f"@{name}")])
    if kind == "middle":
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    if way == "ahead":
        connection.sendall(plain(asked("hello")))
    if way == "reset":
        connection.setsockopt(*RESETS)
    connection.close()
    assert request.wait().client_gone
    row = gateway.only(f"r-{name}")
    assert (row["state"], row["status"], row["error"]) == ("settled", 499, "client_gone")
    assert tried(row) == [(name, "client_gone")], "the next target was asked though no one waits"
    (attempt,) = row["attempts"]
    assert attempt["usage_source"] == attempt["cost_source"] == "estimated"
    # What was not seen may have been written all the same.
    assert min(attempt["input_uncached"], attempt["output_visible"]) > 0
    assert row["cost"] == attempt["cost"] > 0


def test_a_client_that_leaves_between_two_tries_is_settled(gateway: Gateway, upstream: Upstream) -> None:
    upstream.behaviours["later"] = Behaviour(page=lambda _: Page((b"{}",), 503, {"retry-after": "9"}))
    connection = asking(gateway, "r-pausing", stream=False)
    until(lambda: upstream.requests and upstream.last.wait())
    connection.close()
    row = gateway.only("r-pausing")
    assert (row["status"], row["error"]) == (499, "client_gone")
    assert {attempt["outcome"] for attempt in row["attempts"]} <= {"server_error", "overloaded", "client_gone"}
    assert len(upstream.requests) == 1, "it was asked again though no one waits"


@each_row("ahead", [b"", plain(asked("first", "slow"))])
def test_a_body_that_arrives_slowly_is_still_whole(gateway: Gateway, ahead: bytes) -> None:
    """After its headers alone, and behind a request that is answered meanwhile."""
    head, _, body = plain(asked("hello", user="x" * 3_000)).partition(b"\r\n\r\n")
    parts = (body[start : start + 700] for start in range(0, len(body), 700))
    connection = gateway.raw()
    for part in (ahead + head + b"\r\nconnection: close\r\n\r\n", *parts):
        connection.sendall(part)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.2), gateway.loop).result()
    answers = replies(received(connection))
    assert [status for status, _ in answers] == [200] * (1 + bool(ahead))
    assert b'"hello"' in answers[-1][1]


def test_a_client_that_dies_in_the_middle_of_its_body_leaves_nothing(gateway: Gateway) -> None:
    with gateway.raw() as connection:
        connection.sendall(plain(b'{"model": "r-normal-never", ', 1_000))
        assert gateway.get("/health/live").status == 200
    until(lambda: gateway.get("/health/ready").json["in_flight"] == 0)
    assert gateway.rows("SELECT id FROM requests WHERE requested = 'r-normal-never'") == []


def test_many_slow_bodies_do_not_keep_others_waiting(gateway: Gateway) -> None:
    dawdlers = [gateway.raw() for _ in range(50)]
    for connection in dawdlers:
        connection.sendall(plain(b"{", 100))
    assert gateway.chat("auto").status == 200
    for connection in dawdlers:
        connection.close()


def test_a_client_that_reads_a_few_bytes_at_a_time_gets_everything(gateway: Gateway) -> None:
    data = b""
    with asking(gateway, "auto", stream=True) as connection:
        while b"[DONE]" not in data:
            data += (piece := connection.recv(64))
            assert piece, data
