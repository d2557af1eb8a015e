"""Any ledger at all."""

import msgspec
from hypothesis import strategies as st

from router.types.task import Task
from router.types.usage import Usage
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried

COUNT = st.integers(0, 5_000)
USAGE = st.none() | st.builds(
    Usage,
    input_uncached=COUNT,
    cache_read=COUNT,
    cache_write=COUNT,
    output_visible=COUNT,
    output_reasoning=st.none() | COUNT,
)
TRIED = st.builds(
    Tried,
    target=st.sampled_from(["local", "mini", "<i>"]),
    cost=st.integers(0, 10**15),
    usage=USAGE,
    model=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
)
HAPPENED = st.builds(
    Happened,
    id=st.uuids().map(lambda one: one.hex),
    tried=st.lists(TRIED, max_size=3).map(tuple),
    ends=st.sampled_from(["settled", "settled", "held", "recovered"]),
    held=st.integers(0, 10**15),
    at_ms=st.integers(MONDAY_MS, MONDAY_MS + 3 * DAY_MS),
    route=st.sampled_from(["auto", "code"]),
    key=st.sampled_from(["", "web", "batch"]),
    tags=st.lists(st.sampled_from(["red", 'bl"ue', "gr\\een", "=1+1"]), max_size=3).map(tuple),
    data_class=st.sampled_from(["internal", "pii"]),
    task=st.sampled_from(list(Task)),
).map(lambda one: msgspec.structs.replace(one, tried=()) if one.ends == "held" else one)
HISTORY = st.lists(HAPPENED, max_size=12, unique_by=lambda one: one.id)
