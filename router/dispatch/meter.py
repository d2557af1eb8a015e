"""What is counted and collected of a stream as it arrives, and the events that end one early."""

from collections.abc import Mapping
from math import ceil, inf
from typing import Any

import msgspec
from msgspec import Raw, structs

from router.dispatch.hold import BudgetHold
from router.estimate.estimate import bill_of, worst_cost
from router.estimate.learn import BOOKED, EXTEND, IN_FLIGHT_MS, METERED
from router.types.account import ENDLESS, Amount
from router.types.attempt import Call, StreamDecoder, Usage
from router.types.clock import clock_ms
from router.types.decision import Candidate, FittedRequest
from router.types.request import Endpoint, Request
from router.types.tables import table
from router.types.target import Contract

# How the gateway ends a stream: with the usual last events of its wire, plus why it ended.

STOPPED = "budget_exceeded"
"""Error code in the row of a request whose stream was ended at the limit of its budget."""
PAST_CAP = "cap_exceeded"
"""Error code in the row of a request whose target exceeded its cap on output tokens."""
MESSAGES = {
    STOPPED: "The budget of this request is used up: the answer ends here.",
    PAST_CAP: "The upstream wrote on past the cap on output tokens: the answer ends here.",
}


def finish(first: bytes, call: Call, stopped: str) -> bytes:
    """Returns the event that ends every choice with `length`. `first`: the stream's first events."""
    rest: dict[str, Any] = {"text": ""} if call.endpoint is Endpoint.COMPLETIONS else {"delta": {}}
    choices = [{"index": index, **rest, "logprobs": None, "finish_reason": "length"} for index in range(call.n)]
    return _frame({**_head(first, call), "choices": choices, "lowpass": _why(stopped)})


def closing_events(first: bytes, call: Call, usage: bytes, stopped: str) -> bytes:
    """Returns the last events: why the stream ends (a key of `MESSAGES`), and its usage, requested or not."""
    if call.endpoint is Endpoint.RESPONSES:
        response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        response["lowpass"] = _why(stopped)
        data = {"type": "response.incomplete", "response": _head(first, call) | response | {"usage": Raw(usage)}}
        return b"event: response.incomplete\n" + _frame(data)
    chunk = {**_head(first, call), "choices": [], "usage": Raw(usage)}
    return finish(first, call, stopped) + _frame(chunk) + b"data: [DONE]\n\n"


def _why(stopped: str) -> dict[str, str]:
    return {"stopped": stopped, "message": MESSAGES[stopped]}


def _head(first: bytes, call: Call) -> dict[str, Any]:
    """Returns the members that identify the answer in each of its events."""
    start = first.find(b"data: {")
    if start < 0:
        return {"model": call.model}
    event = msgspec.json.decode(first[start + 6 : first.index(b"\n\n", start)])
    if call.endpoint is Endpoint.RESPONSES:
        return dict(event.get("response", {}))
    return {name: event[name] for name in ("id", "object", "created", "model") if name in event}


def _frame(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


# Collects the events of a stream into one answer for a client that did not ask for a stream.

_DATA = b"data: "
_ONCE = frozenset({"id", "type", "role", "index"})
"""Members that each chunk repeats, rather than continues."""


class AnswerCollector:
    """Builds a whole answer from what a `StreamDecoder` returns: whole events of the call's endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._fields: dict[str, Raw] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Raw] = {}

    def feed(self, events: bytes) -> None:
        for event in events.split(b"\n\n"):
            data = event[event.find(_DATA) + len(_DATA) :] if _DATA in event else b""
            if data.startswith(b"{"):
                self._take(msgspec.json.decode(data, type=dict[str, Raw]))

    def body(self) -> dict[str, Raw]:
        """Returns the answer without its usage; {} if there was none."""
        if self._endpoint is Endpoint.RESPONSES or not self._fields:
            return self._response
        whole = "chat.completion" if self._endpoint is Endpoint.CHAT else "text_completion"
        choices = [_whole(self._choices[index]) for index in sorted(self._choices)]
        return {**self._fields, "object": Raw(msgspec.json.encode(whole)), "choices": Raw(msgspec.json.encode(choices))}

    def _take(self, event: dict[str, Raw]) -> None:
        if self._endpoint is Endpoint.RESPONSES:
            # Each event that carries the response supersedes the one before.
            if "response" in event:
                self._response = msgspec.json.decode(event["response"], type=dict[str, Raw])
            return
        for choice in _ANY_CHOICES.decode(event.pop("choices", b"null")) or ():
            merge(self._choices.setdefault(choice.get("index") or 0, {}), choice)
        event.pop("usage", None)
        self._fields |= event


_ANY_CHOICES = msgspec.json.Decoder(list[dict[str, Any]] | None)


def answer_text(body: Mapping[str, Raw]) -> str:
    """Returns the text of the first choice's message in a whole answer; empty if there is none."""
    try:
        choices = _ANY_CHOICES.decode(body.get("choices", b"null"))
    except (msgspec.DecodeError, RecursionError):
        return ""  # another endpoint may have a `choices` of its own; or the JSON is nested too deeply
    message = choices[0].get("message") if choices else None
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


_MEDIA, _FOUND, _OWN_TOOLS, _CLIENTS_TOOLS = map(tuple, table("dispatch/data/beside_output.yaml").values())
_SIGNS = [b'"%b":' % name.encode() for name in _MEDIA + _FOUND] + [name.encode() + b'"' for name in _OWN_TOOLS]


def apart(payload: bytes) -> tuple[int, int]:
    """Returns the bytes of an answer's JSON that its output tokens do not stand for: those of images and audio, and
    those of log probabilities, results of the provider's own tools, and the repeated request."""
    media, tools, waiting = 0, 0, list[Any]()
    if any(sign in payload for sign in _SIGNS):
        try:
            waiting.append(msgspec.json.decode(payload))
        except (msgspec.DecodeError, RecursionError):
            return 0, 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            media += sum(len(msgspec.json.encode(value[name])) for name in _MEDIA if name in value)
            kind = value.get("type")
            if isinstance(kind, str) and kind.endswith(_OWN_TOOLS) and kind not in _CLIENTS_TOOLS:
                tools += len(msgspec.json.encode({name: each for name, each in value.items() if name not in _MEDIA}))
                continue
            tools += sum(len(msgspec.json.encode(value[name])) for name in _FOUND if name in value)
            waiting += (inner for name, inner in value.items() if name not in _MEDIA + _FOUND)
        elif isinstance(value, list):
            waiting += value
    return media, tools


def merge(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Merges a chunk into `whole`: texts and lists grow, and members of lists are matched by `index`."""
    for name, value in part.items():
        known = whole.get(name)
        if known is None and isinstance(value, list):
            whole[name] = []
            _extend(whole[name], value)  # a list may hold the same index twice
        elif known is None or value is None or name in _ONCE:
            whole[name] = known if value is None else value
        elif isinstance(known, str) and isinstance(value, str):
            whole[name] = known + value
        elif isinstance(known, dict) and isinstance(value, dict):
            merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            _extend(known, value)
        else:
            whole[name] = value


def _extend(whole: list[Any], part: list[Any]) -> None:
    for item in part:
        index = item.get("index") if isinstance(item, dict) else None
        same = next((known for known in whole if index is not None and known.get("index") == index), None)
        if same is None:
            whole.append(item)
        else:
            merge(same, item)


def _whole(choice: dict[str, Any]) -> dict[str, Any]:
    """Turns a collected choice into one of a whole answer: `message` for `delta`, tool calls without an index."""
    if "delta" not in choice:
        return choice
    message = {"role": "assistant", "content": None, **choice.pop("delta")}
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
    return {**choice, "message": message, "finish_reason": choice.get("finish_reason")}


# Metering a stream against its hold: the hold grows with the answer; the stream ends where it can't.

STEP = 8
"""Minimum number of tokens by which a hold grows, per choice."""
LATE = 2
"""Factor on the usual delay that the first part of a stream, and the next check of it, may take."""
NOTHING = Usage()


class Meter:
    """Meters one attempt. `due` is called after every part of the stream and counts text only if needed."""

    def __init__(self, budget: BudgetHold, step: Candidate, request: Request, fit: FittedRequest) -> None:
        self._budget, self._candidate, self._request = budget, step, request
        exact = step.target.model.thinking.contract is Contract.EXACT
        self._cap = fit.max_output or step.estimate.max_output
        self._thought_cap = min(self._cap, fit.thinking_budget or ENDLESS) if exact else self._cap
        self._thinks = fit.thinks
        self._doubted, self._cold = fit.doubted, BOOKED if fit.doubted else METERED
        self._served = step.target.model.name
        learned, target = budget.learned, step.target.id
        self._part = self._ahead = (learned.ahead(target) or 0.0) * request.n
        """Tokens of the largest part, and of what may have arrived or been written before the next check."""
        self._usual_pace = self._pace = learned.rates.get(target, 0.0) * request.n
        """Tokens per ms, over all choices."""
        self._written = self._thought = 0.0
        self._come = self._counted_size = self._largest = 0.0
        """Bytes that arrived; bytes counted so far; bytes of the largest part not counted yet."""
        self._came_ms = self._began_ms = self._looked_ms = inf
        """Times in ms: when the last part arrived (or the first is overdue), when the first did, and the last check."""
        self._gap_ms: float = IN_FLIGHT_MS if fit.doubted and self._part else 0
        """Longest time in ms between two checks, e.g. with a busy event loop; assumed at first if a cap is doubted."""
        budget.metered(self)
        self._measure()

    def due(self, decoder: StreamDecoder, unread: float) -> bool:
        """Returns whether output under way might use up the hold. `unread`: bytes of output that have arrived and are
        not decoded yet."""
        if (served := decoder.model_served) not in ("", self._served):
            # The answer names the model that writes it; a dearer one uses up the hold sooner.
            self._served, target = served, self._candidate.target
            self._candidate = structs.replace(self._candidate, target=target.at(target.price(served)))
            self._measure()
        if self._covered:
            return False
        size, now, come = decoder.output_chars, clock_ms(), decoder.output_chars + unread
        if come > self._come:
            self._largest, self._come, self._came_ms = max(self._largest, come - self._come), come, now
            self._began_ms = min(self._began_ms, now)
        elif self._came_ms == inf:
            self._came_ms = now + LATE * self._budget.learned.pace(self._candidate.target.id).first_ms
        self._gap_ms, self._looked_ms = max(self._gap_ms, now - self._looked_ms), now
        # Tokens may have been written for as long as two checks are apart.
        unseen_ms = max(IN_FLIGHT_MS, LATE * self._gap_ms) + max(0.0, now - self._came_ms)
        uncounted = decoder.usage is None and (decoder.has_answer or self.paid_thoughts == ENDLESS)
        most = self._written + come - self._counted_size + max(self._part, self._pace * unseen_ms, self._largest)
        if uncounted and most < self._output:
            return False  # even if each byte since the last count is a token
        written = self._budget.learned.most_tokens(self._candidate.target.id, decoder.text.sizes(), self._cold)
        if size > self._counted_size:
            new = (written - self._written) / (size - self._counted_size)
            self._part = max(self._part, self._largest * new)
        self._written, self._counted_size, self._largest = written, size, 0
        if not decoder.has_answer:
            self._thought = written
        waiting = written * unread / size if size else 0.0
        self._pace = max(self._usual_pace, (written + waiting) / max(IN_FLIGHT_MS, now - self._began_ms))
        self._ahead = waiting + max(self._part, self._pace * unseen_ms)
        thoughts, output = self._counted(decoder)
        more_thoughts = 0 if decoder.has_answer else self._ahead
        return output + self._ahead >= self._output or thoughts + more_thoughts > self.paid_thoughts

    async def extend(self, decoder: StreamDecoder) -> bool:
        """Extends the hold for one more step; returns whether all that is wanted is held now."""
        thoughts, output = self._counted(decoder)
        thinking = self._tokens(thoughts) if self._thinks and not decoder.has_answer else 0
        wanted = Amount(worst_cost(self._candidate, self._request, self._tokens(output)), thinking)
        grew = await self._budget.extend(wanted.beyond(self._budget.left(self._candidate.target.id)))
        self._measure()
        return grew and wanted.beyond(self._budget.left(self._candidate.target.id)) == Amount()

    def lasts_s(self, decoder: StreamDecoder) -> float:
        """Returns for how many seconds the hold and this stream's share of what is left last at half of what they pay
        for; the other half is for what arrives until the upstream has been stopped."""
        most = self._budget.left(self._candidate.target.id).plus(self._budget.share())
        thoughts, output = self._counted(decoder)
        tokens = min(self._bought(most.usd) - output, inf if decoder.has_answer else most.thinking - thoughts)
        return max(0.0, tokens) / max(self._pace, 1 / ENDLESS) / 2_000

    def in_flight(self, now: float) -> float:
        """Returns the tokens possibly written by `now` that have not arrived; 0 if the hold covers the cap."""
        return 0.0 if self._covered else self._pace * (IN_FLIGHT_MS + max(0.0, now - self._came_ms))

    def _counted(self, decoder: StreamDecoder) -> tuple[float, float]:
        """Returns upper bounds of thinking and output tokens, at least the provider's running counts."""
        usage = decoder.usage or NOTHING
        return max(self._thought, usage.output_reasoning or 0), max(self._written, usage.totals.output)

    def _tokens(self, tokens: float) -> int:
        """Returns the tokens to hold: those seen and one step more."""
        return ceil(tokens * (1 + EXTEND) + self._ahead) + STEP * self._request.n

    def _measure(self) -> None:
        """Updates the output and thinking tokens that what is left pays for; unlimited if it covers the caps."""
        left, n = self._budget.left(self._candidate.target.id), self._request.n
        self.paid = self._bought(left.usd)
        """Output tokens, over all choices, that what is left pays for."""
        self.trusted = not (self._doubted or self._budget.learned.worst[self._candidate.target.id])
        """Whether the target is expected to keep its cap."""
        covered = self.trusted and self.paid >= self._cap * n
        self._output = inf if covered else self.paid
        unmetered = not self._thinks or (left.thinking >= self._thought_cap * n and not self._doubted)
        self.paid_thoughts = ENDLESS if unmetered else left.thinking
        self._covered = covered and unmetered

    def _bought(self, usd: int) -> int:
        """Returns the output tokens, over all choices, that `usd` nano-USD pay for."""
        request = self._request
        return bill_of(self._candidate, request).output(usd) // request.choices * request.n
