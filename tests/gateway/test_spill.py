"""A real engine with one slot, more requests than it can take, and a target that takes the rest."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from local_serving.spec import read
from tests.gateway.running import ROOT, ordered, serving, target
from tests.upstream import Upstream

MANY = 24
SHIPPED = ROOT / "local_serving" / "engines" / "smollm2.yaml"


def policy(url: str, folder: Path) -> dict[str, Any]:
    """Beside the shipped spec stands one that has one slot."""
    rows = yaml.safe_load(SHIPPED.read_text("utf-8"))
    spec = folder / "one.yaml"
    spec.write_text(yaml.safe_dump({**rows, "name": "one", "parallel": 1, "threads": 1, "context": 2_048}))
    local = {"model": read(spec).model, "engine": str(spec), "max_wait_ms": 200}
    return {
        "version": 1,
        "targets": {"local": local, "cloud": target(url, "normal")},
        "routes": {"auto": ordered("local", "cloud"), "here": ordered("local")},
    }


def test_nothing_is_lost_and_the_rows_say_where_each_went(upstream: Upstream, tmp_path: Path) -> None:
    """In two processes, of which each knows of the other's requests only what the engine says."""
    with serving(tmp_path, policy(upstream.url, tmp_path), {"LOWPASS_WORKERS": "2"}) as gateway:
        with ThreadPoolExecutor(MANY) as pool:
            replies = list(pool.map(lambda _: gateway.chat("auto", max_tokens=24), range(MANY)))
        rows = [gateway.settled(reply.headers["x-request-id"]) for reply in replies]
        assert [(reply.status, row["status"], row["state"]) for reply, row in zip(replies, rows, strict=True)] == [
            (200, 200, "settled")
        ] * MANY
        went = Counter(reply.headers["x-lowpass-model"] for reply in replies)
        assert set(went) == {"local", "cloud"}
        assert went == Counter(row["attempts"][-1]["target"] for row in rows)
        told = {reply.headers["x-lowpass-model"] for reply in replies if "x-lowpass-spilled" in reply.headers}
        assert told == {"cloud"}
        # Alone it waits, however long that is.
        with ThreadPoolExecutor(4) as pool:
            queued = list(pool.map(lambda _: gateway.chat("here", max_tokens=8), range(4)))
        assert [(one.status, one.headers["x-lowpass-model"]) for one in queued] == [(200, "local")] * 4
        gateway.check_books()
