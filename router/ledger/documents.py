"""Documents of decisions in few bytes: raw deflate, with documents of the same policy as its dictionary."""

import zlib
from collections.abc import Mapping, Sequence

from router.ledger.connection import Connection

NONE = 0
"""The dictionary of documents that are compressed by themselves."""
SAMPLE = 16
"""Documents that a dictionary is made of, if there are as many."""
_LARGEST = 32_768
"""Bytes of a dictionary; deflate looks no further back."""
_LEVEL = 6
_RAW = -zlib.MAX_WBITS
_KNOWN = "SELECT id, policy, data FROM dictionaries ORDER BY id"
_ADD = "INSERT INTO dictionaries (id, policy, data) VALUES (?, ?, ?)"


class Documents:
    """Those of one ledger, as of the transaction in which it is made."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._data: dict[int, bytes] = {NONE: b""}
        self._of_policy: dict[str, int] = {}
        for number, policy, data in connection.execute(_KNOWN):
            self._data[number], self._of_policy[policy] = data, number

    def learn(self, documents: Mapping[str, Sequence[str]]) -> None:
        """Makes a dictionary for each policy that has none yet, and enough documents (by policy); in a transaction."""
        for policy, texts in documents.items():
            if policy not in self._of_policy and len(texts) >= SAMPLE:
                number, data = max(self._data) + 1, "".join(texts[:SAMPLE]).encode()[-_LARGEST:]
                self._connection.execute(_ADD, (number, policy, data))
                self._data[number], self._of_policy[policy] = data, number

    def compressed(self, policy: str, document: str) -> tuple[int, bytes]:
        """Number of its dictionary, and the bytes. A policy without a dictionary uses the newest one."""
        number = self._of_policy.get(policy, max(self._data))
        packer = zlib.compressobj(_LEVEL, wbits=_RAW, zdict=self._data[number])
        return number, packer.compress(document.encode()) + packer.flush()

    def restored(self, dictionary: int, data: bytes) -> str:
        """An empty text, which no document is, for what is damaged: the rest of the request can still be read, and
        `lowpass ledger verify` names it."""
        try:
            return zlib.decompressobj(_RAW, zdict=self._data[dictionary]).decompress(data).decode()
        except (KeyError, UnicodeDecodeError, zlib.error):
            return ""
