"""Step 8: what the client reads: the answer with its usage, and the headers that explain it."""

from msgspec import Raw

from router.api.asgi import Headers, encode
from router.api.responses import from_chat
from router.decide.explain import explain
from router.decide.reason import with_reason
from router.refusals import rate_headers
from router.types.clock import now_ms
from router.types.money import usd_json
from router.types.request import Request
from router.types.served import Served


def whole(request: Request, served: Served) -> bytes:
    usage, body = Raw(served.usage), served.body or {}
    if served.translated:
        body = from_chat(body, request.body, f"resp_{request.id}", usage)
    else:
        body["usage"] = usage
    if request.limits.explain:
        body["lowpass"] = Raw(with_reason(encode(explain(served.decision))))
    return encode(body)


def answer_headers(request: Request, served: Served) -> Headers:
    seen, request_id = served.decision.classification, request.id.encode()
    headers = [
        (b"x-request-id", request_id),
        (b"x-lowpass-decision", request_id),
        (b"x-lowpass-model", served.step.target.id.encode()),
        (b"x-lowpass-class", seen.data_class.encode()),
        (b"x-lowpass-difficulty", b"%.3f" % seen.difficulty),
        (b"x-lowpass-thinking", served.thinking.encode()),
    ]
    if served.lowered:
        headers.append((b"x-lowpass-lowered", ", ".join(served.lowered).encode()))
    if served.decision.plan.queued:
        told = ", ".join(queue.told() for queue in served.decision.plan.queued if queue.spilled)
        headers += [(b"x-lowpass-spilled", told.encode())] if told else []
    if served.loop:
        headers.append((b"x-lowpass-loop", served.loop.encode()))
    if served.rates:
        headers += [(name.encode(), value.encode()) for name, value in rate_headers(served.rates, now_ms())]
    if served.cost is not None:
        headers.append((b"x-lowpass-cost-usd", usd_json(served.cost)))
    return headers
