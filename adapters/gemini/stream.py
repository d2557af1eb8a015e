"""`streamGenerateContent?alt=sse` → `chat.completion.chunk` events."""

from typing import Any

from adapters.chunks import Chunks
from adapters.failure import streamed
from adapters.gemini.usage import latest, usage
from adapters.gemini.wire import NULL, Candidate, Tokens, finish, logprobs, response, said, tokens
from adapters.sse import EventStream
from router.errors import UpstreamFailure
from router.types.call import Call


class GeminiStream(EventStream):
    """Finish reasons wait for `final`: Gemini may repeat one on every chunk."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._chunks = Chunks(call)
        self._begun = False
        self._tokens: Tokens | None = None
        self._calls: dict[int, int] = {}
        self._reasons: dict[int, str] = {}

    def final(self, usage: bytes) -> bytes:
        ends = [
            self._chunks.delta({}, index, finish(reason, called=self._calls[index] > 0))
            for index, reason in sorted(self._reasons.items())
        ]
        return b"".join(ends) + self._chunks.closing(usage)

    def _event(self, name: bytes, payload: bytes) -> bytes:
        answer = response(payload)
        if answer.error != NULL:
            raise UpstreamFailure(streamed(payload))
        if counts := tokens(answer.usage_metadata):
            self._tokens = latest(self._tokens, counts)
            self.usage = usage(self._tokens)
        self.model_served = answer.model_version or self.model_served
        if answer.response_id and not self._begun:
            self._chunks.name(answer.response_id)
        self._begun = True
        return b"".join([self._candidate(candidate) for candidate in answer.candidates or ()])

    def _candidate(self, candidate: Candidate) -> bytes:
        index, reason = candidate.index, candidate.finish_reason
        role = {} if index in self._calls else {"role": "assistant", "content": ""}
        delta = said(candidate, self._chunks.id, self._calls.setdefault(index, 0))
        self._count(index, delta)
        if reason:
            self._reasons[index] = reason
            self.finish_reason = finish(self._reasons[min(self._reasons)], called=self._calls[min(self._reasons)] > 0)
        self.finished = self._reasons.keys() == self._calls.keys()
        if not role and not delta and candidate.logprobs_result is None:
            return b""
        return self._chunks.delta({**role, **delta}, index, logprobs=logprobs(candidate))

    def _count(self, index: int, delta: dict[str, Any]) -> None:
        calls = delta.get("tool_calls", ())
        for number, call in enumerate(calls, self._calls[index]):
            call["index"] = number
        self._calls[index] += len(calls)
        self.output_chars += len(delta.get("content", "")) + len(delta.get("reasoning_content", ""))
        self.output_chars += sum(len(call["function"]["name"] + call["function"]["arguments"]) for call in calls)
        self.has_answer = self.has_answer or "content" in delta or bool(calls)
