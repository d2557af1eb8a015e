"""Streams cut and written in every way that the standard allows come out as the same events."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sse import Events, frame

EXPECTED = [(b"", b"one"), (b"named", b"two\nlines"), (b"", b""), (b"", b"[DONE]")]
STREAM = b": hello\n\ndata: one\nid: 4\n\nevent: named\ndata:two\ndata: lines\n\nretry: 5\n\ndata\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_cut_anywhere_gives_the_same_events(ending: bytes, cuts: list[int]) -> None:
    data = STREAM.replace(b"\n", ending) + (b": end\r" if ending == b"\r" else b"")
    places = [0, *sorted(cuts), len(data)]
    events = Events()
    assert [event for a, b in pairwise(places) for event in events.feed(data[a:b])] == EXPECTED


def test_an_unfinished_event_waits() -> None:
    events = Events()
    assert events.feed(b"data: one\n") == []
    assert events.pending
    assert events.feed(b"\n") == [(b"", b"one")]
    assert not events.pending


@given(
    payload=st.text(st.characters(codec="utf-8", exclude_characters="\r")),
    name=st.sampled_from([b"", b"response.created"]),
)
def test_what_is_framed_is_read_back(payload: str, name: bytes) -> None:
    assert Events().feed(frame(payload.encode(), name)) == [(name, payload.encode())]
