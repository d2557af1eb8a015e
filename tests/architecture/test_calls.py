"""What a request costs in calls of Python, which is the same on every machine (`python -m bench.calls`)."""

from bench.calls import counted, gateway, kinds

MOST = {"pinned": 214, "auto": 298, "cascade": 366, "stream": 338, "responses": 261}
"""Calls of our own functions a request, at most: some depend on which target is quick. They may only shrink."""
FILES, DECODES, ENCODES = 59, 17, 13
"""Files that any of them passes through; JSON that is read (a stream: by its events) and written, by each at most."""


def test_no_request_makes_more_calls_than_before() -> None:
    with gateway() as (served, headers):
        counts = {kind: counted(served, headers, kind) for kind in kinds()}
    assert counts.keys() == MOST.keys()
    assert not {kind: count.calls for kind, count in counts.items() if count.calls > MOST[kind]}
    assert all(count.files <= FILES and count.calls > 100 for count in counts.values())
    assert all(count.decodes <= DECODES and count.encodes <= ENCODES for count in counts.values())
