"""Where a provider says that it processed a request, beside where its target says."""

from router.types.call import UpstreamResponse
from router.types.target import Target

LONGEST = 64
"""Characters of a stated region that are kept: whatever else stands there is the provider's to answer for."""


def in_headers(target: Target, response: UpstreamResponse) -> str:
    """The region that the answer's headers state, where the target's terms say that one does ("header:NAME")."""
    kind, _, name = target.terms.verify.partition(":")
    return response.headers.get(name.lower(), "").strip() if kind == "header" else ""


def placed(target: Target, stated: str) -> tuple[str, bool]:
    """The region that counts, and whether the provider itself says so. Case is no difference."""
    if not stated or not target.region:
        return stated[:LONGEST] or target.region, False
    same = stated.casefold() == target.region.casefold()
    return (target.region if same else stated[:LONGEST]), True


def misplaced(target: Target, stated: str) -> bool:
    """The provider says that it was elsewhere."""
    region, verified = placed(target, stated)
    return verified and region != target.region
