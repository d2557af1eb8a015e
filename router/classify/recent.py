"""Looks at texts that are sent again: a user's words, with every step that an agent takes on them."""

from collections import OrderedDict

from router.features.features import Shape
from router.features.look import fingerprint, formed, look
from router.types.classification import Traits

MOST = 1_024
"""Looks that are kept, of 1.3 kB each."""


class Recent:
    """No text is kept, only digests; the oldest are forgotten."""

    def __init__(self) -> None:
        self._looks: OrderedDict[bytes, Traits] = OrderedDict()

    def look(self, text: str, functions: str, shape: Shape) -> Traits:
        """As `router.features.look.look`."""
        digest = fingerprint(text)
        seen = self._looks.get(digest)
        if seen is None:
            seen = self._looks[digest] = look(text)
            if len(self._looks) > MOST:
                self._looks.popitem(last=False)
        return formed(seen, functions, shape)
