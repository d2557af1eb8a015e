"""The same bytes, cut at the same places, read by our HTTP client and by h11: where do the two differ?

Each case is its number: a response with up to three oddities in its status line, headers, framing or end.
"""

import asyncio
import random
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

import h11
from msgspec import Struct, structs

from bench.strange import cut
from router.dispatch.http import LARGEST_HEAD, Exchange, HttpTransport, Origin, UpstreamConnection
from router.errors import UpstreamFailure
from router.types.target import Timeouts

T = TypeVar("T")
BODY = b'{"answer": 42}'
STALE = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstale"
LENGTH, CHUNKED = b"content-length: %d" % len(BODY), b"transfer-encoding: chunked"
_CHUNKS = b"5\r\n" + BODY[:5] + b"\r\n9\r\n" + BODY[5:] + b"\r\n"
ODD_STARTS = {
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n",
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\n",
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\n",
    "http/1.1": b"http/1.1 200 OK\r\n",
    "no reason": b"HTTP/1.1 200 \r\n",
    "no space": b"HTTP/1.1 200\r\n",
    "odd reason": b"HTTP/1.1 200 \xff\x01\r\n",
    "NUL in reason": b"HTTP/1.1 200 a\0b\r\n",
    "two spaces": b"HTTP/1.1  200 OK\r\n",
    "status 20": b"HTTP/1.1 20 OK\r\n",
    "status 099": b"HTTP/1.1 099 OK\r\n",
    "status 600": b"HTTP/1.1 600 OK\r\n",
    "status 2000": b"HTTP/1.1 2000 OK\r\n",
    "status 204": b"HTTP/1.1 204 No Content\r\n",
    "status 205": b"HTTP/1.1 205 Reset Content\r\n",
    "status 304": b"HTTP/1.1 304 Not Modified\r\n",
    "LF": b"HTTP/1.1 200 OK\n",
    "CR": b"HTTP/1.1 200 OK\r",
    "empty line before": b"\r\nHTTP/1.1 200 OK\r\n",
    "blank before": b" HTTP/1.1 200 OK\r\n",
    "100": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
    "100 with a length": b"HTTP/1.1 100 Continue\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n",
    "103 chunked": b"HTTP/1.1 103 Hints\r\ntransfer-encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\n",
    "103 closes": b"HTTP/1.1 103 Hints\r\nconnection: close\r\n\r\nHTTP/1.1 200 OK\r\n",
    "099 before": b"HTTP/1.1 099 Odd\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n",
    "101": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nHTTP/1.1 200 OK\r\n",
}
ODD_FIELDS = {
    "folded": b"x: a\r\n b\r\n",
    "folded connection": b"connection:\r\n close\r\n",
    "no name": b": a\r\n",
    "no colon": b"odd\r\n",
    "blank before colon": b"x : a\r\n",
    "blank in name": b"x y: a\r\n",
    "odd name": b"x\xff: a\r\n",
    "NUL in value": b"x: a\0b\r\n",
    "control in value": b"x: a\x01b\r\n",
    "CR in value": b"x: a\rb\r\n",
    "CR and framing in value": b"x: a\rcontent-length: 3\r\n",
    "LF in header": b"x: a\n",
    "no value": b"x:\r\n",
    "tab": b"x:\ta\t\r\n",
    "long": b"x: " + b"y" * 70_000 + b"\r\n",
    "close": b"connection: close\r\n",
    "keep-alive": b"connection: keep-alive\r\n",
    "close and keep-alive": b"connection: close, keep-alive\r\n",
    "keep-alive, then close": b"connection: keep-alive\r\nconnection: close\r\n",
    "Close": b"Connection: Close\r\n",
    "upgrade": b"upgrade: x\r\nconnection: upgrade\r\n",
    "closed": b"connection: closed\r\n",
}
ODD_FRAMINGS = {
    "length + 3": (b"content-length: %d" % (len(BODY) + 3), BODY),
    "length - 3": (b"content-length: %d" % (len(BODY) - 3), BODY),
    "length twice": (LENGTH + b"\r\n" + LENGTH, BODY),
    "length listed twice": (LENGTH + b", %d" % len(BODY), BODY),
    "two lengths": (LENGTH + b"\r\ncontent-length: 3", BODY),
    "two lengths listed": (LENGTH + b", 3", BODY),
    "length +N": (b"content-length: +%d" % len(BODY), BODY),
    "length -N": (b"content-length: -%d" % len(BODY), BODY),
    "length 0N": (b"content-length: 00%d" % len(BODY), BODY),
    "length 0xN": (b"content-length: 0xe", BODY),
    "length N_": (b"content-length: 1_4", BODY),
    "length of blanks": (b"content-length:   %d \t " % len(BODY), BODY),
    "length empty": (b"content-length: ", BODY),
    "length folded": (b"content-length:\r\n %d" % len(BODY), BODY),
    "length split": (b"content-length: 1\r\n 4", BODY),
    "length huge": (b"content-length: 18446744073709551630", BODY),
    "length 0": (b"content-length: 0", BODY),
    "none": (b"x: y", BODY),
    "chunked": (CHUNKED, _CHUNKS + b"0\r\n\r\n"),
    "chunked and length": (CHUNKED + b"\r\n" + LENGTH, _CHUNKS + b"0\r\n\r\n"),
    "length and chunked": (LENGTH + b"\r\n" + CHUNKED, _CHUNKS + b"0\r\n\r\n"),
    "length and chunked, plain": (LENGTH + b"\r\n" + CHUNKED, BODY),
    "Chunked": (b"Transfer-Encoding: Chunked", _CHUNKS + b"0\r\n\r\n"),
    "chunked folded": (b"transfer-encoding:\r\n chunked", _CHUNKS + b"0\r\n\r\n"),
    "chunked twice": (b"transfer-encoding: chunked, chunked", _CHUNKS + b"0\r\n\r\n"),
    "chunked lines twice": (CHUNKED + b"\r\n" + CHUNKED, _CHUNKS + b"0\r\n\r\n"),
    "gzip, chunked": (b"transfer-encoding: gzip, chunked", _CHUNKS + b"0\r\n\r\n"),
    "gzip then chunked": (b"transfer-encoding: gzip\r\n" + CHUNKED, _CHUNKS + b"0\r\n\r\n"),
    "chunked, gzip": (b"transfer-encoding: chunked, gzip", _CHUNKS + b"0\r\n\r\n"),
    "chunked then gzip": (CHUNKED + b"\r\ntransfer-encoding: gzip", _CHUNKS + b"0\r\n\r\n"),
    "identity": (b"transfer-encoding: identity", BODY),
    "identity and length": (b"transfer-encoding: identity\r\n" + LENGTH, BODY),
    "length and identity": (LENGTH + b"\r\ntransfer-encoding: identity", BODY),
    "xchunked": (b"transfer-encoding: xchunked", _CHUNKS + b"0\r\n\r\n"),
    "chunked;a": (b"transfer-encoding: chunked;a=b", _CHUNKS + b"0\r\n\r\n"),
    "chunked\\v": (b"transfer-encoding: \x0bchunked", _CHUNKS + b"0\r\n\r\n"),
    "chunked empty": (b"transfer-encoding: ", _CHUNKS + b"0\r\n\r\n"),
    "blank before chunked's colon": (b"transfer-encoding : chunked", _CHUNKS + b"0\r\n\r\n"),
    "blank before length's colon": (b"content-length : 14", BODY),
    "size 00e": (CHUNKED, b"00e\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "size E": (CHUNKED, b"E\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "size 0xe": (CHUNKED, b"0xe\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "size +e": (CHUNKED, b"+e\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "size -e": (CHUNKED, b"-e\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "size huge": (CHUNKED, b"1000000000000000e\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "size long": (CHUNKED, b"0" * 30 + b"e\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "size empty": (CHUNKED, b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "blank after size": (CHUNKED, b"e \r\n" + BODY + b"\r\n0\r\n\r\n"),
    "blank before size": (CHUNKED, b" e\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "extension": (CHUNKED, b'e;a="b"\r\n' + BODY + b"\r\n0;c\r\n\r\n"),
    "extension with LF": (CHUNKED, b"e;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "extension with CR": (CHUNKED, b"e;a\rb\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "extension with NUL": (CHUNKED, b"e;a\0\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "LF after size": (CHUNKED, b"e\n" + BODY + b"\r\n0\r\n\r\n"),
    "CR after size": (CHUNKED, b"e\r" + BODY + b"\r\n0\r\n\r\n"),
    "LF after chunk": (CHUNKED, b"e\r\n" + BODY + b"\n0\r\n\r\n"),
    "nothing after chunk": (CHUNKED, b"e\r\n" + BODY + b"0\r\n\r\n"),
    "LF at the end": (CHUNKED, b"e\r\n" + BODY + b"\r\n0\r\n\n"),
    "LFs at the end": (CHUNKED, b"e\r\n" + BODY + b"\r\n0\n\n"),
    "chunk too short": (CHUNKED, b"f\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "chunk too long": (CHUNKED, b"d\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "last 000": (CHUNKED, _CHUNKS + b"000\r\n\r\n"),
    "no last": (CHUNKED, _CHUNKS),
    "trailer": (CHUNKED, _CHUNKS + b"0\r\nx: y\r\n\r\n"),
    "trailer with a length": (CHUNKED, _CHUNKS + b"0\r\ncontent-length: 3\r\n\r\nabc"),
    "trailer closes": (CHUNKED, _CHUNKS + b"0\r\nconnection: close\r\n\r\n"),
    "trailer chunked": (CHUNKED, _CHUNKS + b"0\r\ntransfer-encoding: chunked\r\n\r\n"),
    "odd trailer": (CHUNKED, _CHUNKS + b"0\r\nodd\r\n\r\n"),
    "trailer folded": (CHUNKED, _CHUNKS + b"0\r\nx: y\r\n z\r\n\r\n"),
}
ODD_ENDS = {
    "empty line behind": b"\r\n",
    "LF behind": b"\n",
    "answer behind": STALE,
    "half an answer behind": STALE[:20],
}
ODD_ENDS |= {"NUL behind": b"\0", "0 behind": b"0\r\n"}
HARMLESS = {"size long", "NUL in reason", "empty line before", "empty line behind", "LF behind"}
"""Oddities that h11 minds and we don't. None is part of an answer, and the answer's end stays where it is."""
STRICTER = ("only we refuse", "only h11 reuses the connection")


class Response(Struct, frozen=True):
    odd: tuple[str, ...]
    pieces: tuple[bytes, ...]
    closes: bool


class Answer(Struct, frozen=True):
    """What a client makes of it, where it gets a whole answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    reusable: bool


def response(number: int) -> Response:
    draw, odd = random.Random(number), list[str]()  # noqa: S311 - a case

    def part(share: float, options: Mapping[str, T], sound: T) -> T:
        if draw.random() >= share:
            return sound
        odd.append(draw.choice(list(options)))
        return options[odd[-1]]

    start = part(0.25, ODD_STARTS, b"HTTP/1.1 200 OK\r\n")
    field = part(0.25, ODD_FIELDS, b"")
    framing, body = part(0.6, ODD_FRAMINGS, (LENGTH, BODY))
    end = part(0.2, ODD_ENDS, b"")
    fields = [b"content-type: application/json\r\n", field, framing + b"\r\n"]
    draw.shuffle(fields)
    whole = start + b"".join(fields) + b"\r\n" + body + end
    return Response(tuple(odd), tuple(cut(draw, whole, draw.randrange(5))), draw.random() < 0.3)


class Difference(Struct, frozen=True):
    number: int
    odd: tuple[str, ...]
    what: str
    harmless: bool
    """We are stricter, or only `HARMLESS` oddities are seen in another way."""


async def differences(numbers: Iterable[int]) -> list[Difference]:
    """Of the cases with these numbers."""
    rows = list[Difference]()
    for number in numbers:
        answer = response(number)
        if what := _difference(await ours(answer), theirs(answer)):
            harmless = what in STRICTER or not HARMLESS.isdisjoint(answer.odd)
            rows.append(Difference(number, answer.odd, what, harmless))
    return rows


def _difference(us: Answer | None, them: Answer | None) -> str:
    if us == them:
        return ""
    if us is None or them is None:
        return "only we refuse" if us is None else "only h11 refuses"
    if structs.replace(us, reusable=them.reusable) != them:
        return "another answer"
    return "only we reuse the connection" if us.reusable else "only h11 reuses the connection"


async def ours(answer: Response) -> Answer | None:
    """None: no whole answer, so a refusal, now or when time is over."""
    pool, place = HttpTransport(), Origin("x", 80, tls=False, authority="x", prefix="")
    near, far = socket.socketpair()
    _, connection = await pool.loop.create_connection(partial(UpstreamConnection, pool, place), sock=near)
    exchange = Exchange(connection, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Timeouts())

    async def whole() -> bytes:
        while not exchange.headers_done:
            await exchange.more()
        return await exchange.read()

    reading = asyncio.ensure_future(whole())
    for piece in answer.pieces:
        await _turns()
        with suppress(BrokenPipeError):  # we have refused it, and hung up
            far.sendall(piece)
    await _turns()
    if answer.closes:
        far.close()
        await _turns()
    reusable = connection in pool.idle.get(place, ()) and connection.usable
    if not reading.done():
        exchange.close()
        reading.cancel()
    connection.abort()
    pool.close()
    far.close()
    (body,) = await asyncio.gather(reading, return_exceptions=True)
    await _turns()
    if isinstance(body, UpstreamFailure | asyncio.CancelledError):
        return None
    assert isinstance(body, bytes), body
    return Answer(exchange.status, _facts(exchange.headers.items()), body, reusable)


def theirs(answer: Response) -> Answer | None:
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    head, body, ended = None, b"", False
    try:
        for piece in (*answer.pieces, b"") if answer.closes else answer.pieces:
            client.receive_data(piece)
            while not ended and (event := client.next_event()) is not h11.NEED_DATA and event is not h11.PAUSED:
                if isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    ended = True
                elif isinstance(event, h11.ConnectionClosed):
                    break
    except h11.RemoteProtocolError:
        return None
    if head is None or not ended:
        return None
    kept = client.our_state is client.their_state is h11.DONE and client.trailing_data == (b"", False)
    headers = _facts((name.decode(), value.decode("latin-1")) for name, value in head.headers)
    return Answer(head.status_code, headers, body, kept)


def _facts(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """But for framing, which h11 rewrites, and blanks at the ends."""
    rows = {name: value.strip() for name, value in headers if name not in ("content-length", "transfer-encoding")}
    return tuple(sorted(rows.items()))


async def _turns() -> None:
    """Until the loop has read what the socket holds, and everybody who waited for it has run."""
    for _ in range(8):
        await asyncio.sleep(0)
