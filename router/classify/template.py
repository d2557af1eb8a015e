"""Which template a request comes from: what its application sends again and again, as a digest."""

import re  # one class of characters, on a bounded text: RE2's calls cost more
from hashlib import blake2b

from router.types.request import APPLICATION_DIGITS, TEMPLATE_DIGITS, TENANT_DIGITS, Request

LONGEST = 4_096
"""Characters of the instructions that count, so that the digest of any prompt has a bound."""
_INSTRUCTIONS = ("system", "developer")
_OFFERS = ("tools", "functions", "response_format", "text")
"""Fields of a body that an application sends as they are: tools with their schemas, and the form of the answer."""
_values = re.compile(r"\S*[0-9]\S*")


def template(request: Request, route: str, app: str, tenant: str = "") -> str:
    """24 hexadecimal digits, the same in every process; no text can be read from them. The first eight stand for
    `tenant`, whose own the template is: an organisation, else a key. The next six stand for its application: `route`
    and `app`.

    Words with a digit in them are dates, ids and numbers: they are not told apart, and neither is white space.
    """
    digest = blake2b(digest_size=(TEMPLATE_DIGITS - APPLICATION_DIGITS) // 2)
    left = LONGEST
    for passage in request.passages:
        if left > 0 and passage.role in _INSTRUCTIONS:
            words = _values.sub("0", passage.text[:left]).split()
            digest.update(" ".join(words).encode(errors="surrogatepass") + b"\0")
            left -= len(passage.text)
    for name in _OFFERS:
        if name in request.body:
            digest.update(request.body[name])
    owner = blake2b(tenant.encode(), digest_size=TENANT_DIGITS // 2).hexdigest() if tenant else "0" * TENANT_DIGITS
    named = blake2b(f"{route}\0{app}".encode(), digest_size=(APPLICATION_DIGITS - TENANT_DIGITS) // 2)
    return owner + named.hexdigest() + digest.hexdigest()


def instructions(request: Request) -> int:
    """Bytes with which all requests of a template begin: instructions, and tools with their schemas."""
    texts = sum(
        len(passage.text.encode(errors="replace")) for passage in request.passages if passage.role in _INSTRUCTIONS
    )
    return texts + sum(memoryview(request.body[name]).nbytes for name in _OFFERS if name in request.body)
