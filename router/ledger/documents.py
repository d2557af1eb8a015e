"""Documents of decisions in few bytes: raw deflate, with documents of the same policy as its dictionary."""

import zlib
from collections.abc import Mapping, Sequence

from router.ledger.connection import Connection
from router.types.journal import Value

NONE = 0
"""The dictionary of documents that are compressed by themselves."""
SAMPLE = 16
"""Documents that a dictionary is made of, if there are as many."""
_LARGEST = 32_768
"""Bytes of a dictionary; deflate looks no further back."""
_LEVEL = 6
_RAW = -zlib.MAX_WBITS
_KNOWN = "SELECT id, policy, data FROM dictionaries WHERE id > ? ORDER BY id"
_ADD = "INSERT INTO dictionaries (id, policy, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
Compressed = tuple[str, int, str, int, bytes]
"""A decision: id, when it was made (Unix ms), policy, number of the dictionary, document."""


class Documents:
    """Those of one ledger, with the dictionaries that it has by now."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._data: dict[int, bytes] = {NONE: b""}
        self._of_policy: dict[str, int] = {}
        self._read()

    def compressed(self, decisions: Sequence[Mapping[str, Value]]) -> list[Compressed]:
        """Makes a dictionary for each policy that has none yet and enough documents here; others use the newest one."""
        by_policy: dict[str, list[str]] = {}
        for line in decisions:
            by_policy.setdefault(str(line["policy"]), []).append(str(line["document"]))
        for policy, texts in by_policy.items():
            if policy not in self._of_policy and len(texts) >= SAMPLE:
                data = "".join(texts[:SAMPLE]).encode()[-_LARGEST:]
                self._connection.execute(_ADD, (max(self._data) + 1, policy, data))
                self._read()
        return [self._compressed(line) for line in decisions]

    def _read(self) -> None:
        for number, policy, data in self._connection.execute(_KNOWN, (max(self._data),)):
            self._data[number], self._of_policy[policy] = bytes(data), number

    def _compressed(self, line: Mapping[str, Value]) -> Compressed:
        policy = str(line["policy"])
        number = self._of_policy.get(policy, max(self._data))
        packer = zlib.compressobj(_LEVEL, wbits=_RAW, zdict=self._data[number])
        data = packer.compress(str(line["document"]).encode()) + packer.flush()
        return str(line["id"]), int(str(line["decided_ms"])), policy, number, data

    def restored(self, dictionary: int, data: bytes) -> str:
        """An empty text, which no document is, for what is damaged: the rest of the request can still be read, and
        `lowpass ledger verify` names it."""
        try:
            return zlib.decompressobj(_RAW, zdict=self._data[dictionary]).decompress(data).decode()
        except (KeyError, UnicodeDecodeError, zlib.error):
            return ""
