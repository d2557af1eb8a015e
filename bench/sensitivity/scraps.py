"""Harmless bits that fill harmless texts: numbers of all kinds, hashes, versions, words."""

import base64
import re
import struct
import uuid
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

from bench.sensitivity.values import Value
from bench.sensitivity.values.draw import HEX, digits, mask, word

_SIZED = re.compile(r"([dhbu])(\d+)")
_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_WORDS = (
    "alpha",
    "batch",
    "cache",
    "delta",
    "edge",
    "frame",
    "graph",
    "hash",
    "index",
    "join",
    "kernel",
    "layer",
    "merge",
    "node",
    "offset",
    "parse",
    "queue",
    "route",
    "shard",
    "table",
    "union",
    "vector",
    "window",
    "yield",
    "zone",
    "buffer",
    "cursor",
    "driver",
    "engine",
    "filter",
    "handle",
    "invoice",
    "journal",
    "ledger",
    "matrix",
    "number",
    "order",
    "packet",
    "quota",
    "record",
    "sample",
    "token",
    "unit",
    "value",
    "worker",
)


def fill(draw: Random) -> Callable[[str], tuple[str, Value]]:
    """`d4`, `h40`, `b64`, `u8`: so many digits, hex, base64, capitals and digits; else a name of `_SCRAPS`."""

    def scrap(gap: str) -> tuple[str, Value]:
        sized = _SIZED.fullmatch(gap)
        if sized:
            return "", Value(_ALPHABETS[sized[1]](draw, int(sized[2])))
        return "", Value(_SCRAPS[gap](draw))

    return scrap


_ALPHABETS: dict[str, Callable[[Random, int], str]] = {
    "d": lambda draw, size: draw.choice("123456789") + digits(draw, size - 1),
    "h": lambda draw, size: word(draw, HEX, size),
    "b": lambda draw, size: word(draw, _BASE64, size),
    "u": lambda draw, size: word(draw, "ABCDEFGHJKLMNPQRSTUVWXYZ23456789", size),
}


def _when(draw: Random) -> datetime:
    return datetime.fromtimestamp(draw.randrange(1_000_000_000, 1_800_000_000), UTC)


def _version(draw: Random) -> str:
    return ".".join(str(draw.randrange(30)) for _ in range(draw.choice((2, 2, 3, 3, 3, 3, 3, 3, 3, 4))))


def _ean(draw: Random) -> str:
    twelve = draw.choice(("40", "50", "73", "87", "978", "979")) + digits(draw, 12)
    twelve = twelve[:12]
    total = sum(int(one) * (1 + 2 * (place % 2)) for place, one in enumerate(twelve))
    return twelve + str(-total % 10)


def _isbn(draw: Random) -> str:
    number = _ean(draw)
    return f"978-{number[3]}-{number[4:7]}-{number[7:12]}-{number[12]}"


def _png(draw: Random) -> str:
    """A small picture of noise, as a data URL."""
    side = draw.randrange(6, 20)
    rows = b"".join(b"\0" + draw.randbytes(side * 3) for _ in range(side))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


_SCRAPS: dict[str, Callable[[Random], str]] = {
    "n": lambda draw: str(draw.randrange(1, 100)),
    "num": lambda draw: str(draw.randrange(100, 1_000_000)),
    "big": lambda draw: f"{draw.randrange(10**6, 10**11):,}",
    "f": lambda draw: f"{draw.uniform(-100, 1000):.{draw.randrange(1, 7)}f}",
    "e": lambda draw: f"{draw.uniform(1, 10):.3f}e{draw.randrange(-12, 20):+03}",
    "w": lambda draw: draw.choice(_WORDS),
    "W": lambda draw: draw.choice(_WORDS).title(),
    "id": lambda draw: "_".join(draw.choices(_WORDS, k=2)),
    "Id": lambda draw: "".join(part.title() for part in draw.choices(_WORDS, k=2)),
    "ver": _version,
    "sem": lambda draw: ".".join(str(draw.randrange(30)) for _ in range(3)),
    "price": lambda draw: f"{draw.randrange(1, 3000)}.{digits(draw, 2)}",
    "uuid": lambda draw: str(uuid.UUID(int=draw.getrandbits(128), version=4)),
    "ean": _ean,
    "isbn": _isbn,
    "date": lambda draw: f"{_when(draw):%Y-%m-%d}",
    "eudate": lambda draw: f"{_when(draw):%d.%m.%Y}",
    "usdate": lambda draw: f"{_when(draw):%m/%d/%Y}",
    "time": lambda draw: f"{_when(draw):%H:%M:%S}",
    "iso": lambda draw: f"{_when(draw):%Y-%m-%dT%H:%M:%S}.{digits(draw, 3)}Z",
    "ts": lambda draw: str(draw.randrange(1_400_000_000, 1_800_000_000)),
    "tsms": lambda draw: str(draw.randrange(1_400_000_000_000, 1_800_000_000_000)),
    "lat": lambda draw: f"{draw.uniform(-90, 90):.6f}",
    "lon": lambda draw: f"{draw.uniform(-180, 180):.6f}",
    "png": _png,
    "sku": lambda draw: mask(draw, draw.choice(("AA-xxxx-A", "AAxxxxxx", "xxx-xxxx-xx", "AAA.xxx.xxx", "xxxxxx-AA"))),
    "eur": lambda draw: f"{draw.randrange(1, 999)}.{digits(draw, 3)},{digits(draw, 2)} €",
}
