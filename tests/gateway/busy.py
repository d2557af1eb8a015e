"""An engine that another team runs, in vLLM's words, beside the scripted upstream: as busy as a test says."""

import json
from pathlib import Path
from typing import Any

from router.testing.upstream import Answer, Ask, Behaviour, Page, Recorded, Upstream

SLOTS = 2
MODEL = "busy-model"
TAKES_S = 0.3
"""An answer: else it would be learned that its queues are short, however many wait."""
_FULL = {"message": "The engine is busy.", "type": "Service Unavailable", "param": None, "code": 503}


class Busy(Upstream):
    """The engine answers every chat at `/vllm`, and none later than others, whatever it says of itself."""

    running, waiting, full, well, tells = 0, 0, False, True, True

    @property
    def models(self) -> list[str]:
        """Those that the engine was asked for, in order."""
        return [request.json["model"] for request in self.requests if _chats(request)]

    @property
    def posts(self) -> list[Recorded]:
        """Without the looks at what its engine says of itself."""
        return [request for request in self.requests if request.method == "POST"]

    def clear(self) -> None:
        super().clear()
        self.running, self.waiting, self.full, self.well, self.tells = 0, 0, False, True, True

    def behaviour(self, ask: Ask) -> Behaviour | None:
        engine = Behaviour(answer=lambda *_: Answer(text=("Hello.",)), delay_s=TAKES_S, served=MODEL)
        return super().behaviour(ask) or engine

    def page(self, request: Recorded) -> Page | None:
        if request.path.endswith("/metrics"):
            return Page((self._metrics().encode(),), 200 if self.tells else 404)
        if request.path.endswith("/health"):
            return Page(status=200 if self.well else 500)
        if request.method == "GET":
            return _json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        return _json(503, {"error": _FULL}) if self.full and _chats(request) else None

    def _metrics(self) -> str:
        labels = f'{{engine="0",model_name="{MODEL}"}}'
        counts = {"num_requests_running": self.running, "num_requests_waiting": self.waiting}
        counts |= {"kv_cache_usage_perc": 0.5, "num_preemptions_total": 3}  # type: ignore[dict-item]
        rejected = f'vllm:admission_rejections_total{{model_name="{MODEL}",reason="requests"}} 7'
        return "\n".join([*(f"vllm:{name}{labels} {value}" for name, value in counts.items()), rejected, ""])

    def spec(self, folder: Path, **more: Any) -> str:
        """Path of its spec, as policies name it."""
        path, urls = folder / "busy.yaml", [f"{self.url}/vllm/v1"]
        rows = {"name": "busy", "engine": "external", "model": MODEL, "urls": urls, "parallel": SLOTS, "gpus": 0}
        path.write_text(json.dumps(rows | more))
        return str(path)


def _chats(request: Recorded) -> bool:
    return request.method == "POST" and request.path.startswith("/vllm/")


def _json(status: int, content: Any) -> Page:
    return Page((json.dumps(content).encode(),), status)
