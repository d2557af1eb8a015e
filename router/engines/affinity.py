"""Which requests belong together: a replica's prefix cache knows the beginnings of what it has served.

Rendezvous hashing (Thaler and Ravishankar, 1998): each replica has a weight for each conversation, and the heaviest
serves it. Whoever computes it comes to the same, so processes need not talk, and nothing of a request is kept. A
replica that leaves moves its own conversations only, and has them back when it returns.
"""

from collections.abc import Sequence
from hashlib import blake2b

from router.types.request import Request

LONGEST = 2_048
"""Characters of a text that are looked at: what differs only later shares a long beginning, and should meet."""
_NUMBER = 8
"""Bytes."""
_ODD, _ALL = 0xBF58476D1CE4E5B9, 2**64 - 1


def conversation(request: Request, secret: bytes) -> int:
    """The same for all turns of a conversation, 64 bits: of its session, where it names one, else of its beginning."""
    session = request.limits.session
    beginning = f"session {session}" if session else "\0".join(_beginning(request))
    return number(beginning, secret)


def number(text: str, secret: bytes) -> int:
    """64 bits, the same in all processes with this `secret` (up to 64 bytes); others can't foretell them."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=_NUMBER, key=secret).digest())


def weight(conversation: int, replica: int) -> int:
    """Of a replica for a conversation: every bit of both in every bit of it (a round of SplitMix64)."""
    mixed = (conversation ^ replica) * _ODD & _ALL
    return (mixed ^ mixed >> 32) * _ODD & _ALL


def _beginning(request: Request) -> Sequence[str]:
    """Up to what its user says first: the instructions alone are those of many conversations."""
    texts = []
    for passage in request.passages:
        texts.append(passage.text[:LONGEST])
        if passage.role in ("user", ""):
            break
    return texts
