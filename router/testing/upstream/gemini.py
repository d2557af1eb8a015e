"""Gemini's generateContent."""

from collections.abc import Iterator

import msgspec

from router.testing.upstream.behaviours import (
    RETRY_AFTER_S,
    Answer,
    Ask,
    BadRequest,
    Behaviour,
    Fault,
    Json,
    Reports,
    SseFrame,
    Tokens,
    Tool,
    record,
    rows,
)
from router.types.tables import table

FIELDS = frozenset(table("testing/upstream/fields.yaml")["gemini"])
CONFIG = frozenset(table("testing/upstream/fields.yaml")["gemini_config"])
_ERRORS = table("testing/upstream/errors.yaml")["gemini"]
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}


class Gemini:
    newline = "\r\n"
    preamble = ""

    def ask(self, body: Json, ask: Ask) -> Ask:
        config = record(body.get("generationConfig") or body.get("generation_config"))
        _check(body, config)
        functions = [f for tool in rows(body.get("tools")) for f in rows(_either(tool, "functionDeclarations"))]
        schemas = (config.get(name) for name in ("responseSchema", "responseJsonSchema", "_responseJsonSchema"))
        n = config.get("candidateCount")
        return msgspec.structs.replace(
            ask,
            n=n if isinstance(n, int) else 1,
            schema=next((record(schema) for schema in schemas if schema), None),
            tools=tuple(
                Tool(str(f["name"]), (record(f.get("parameters")) or record(_either(f, "parametersJsonSchema"))))
                for f in functions
            ),
            body=body,
        )

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        answers = [behaviour.answer(ask, i) for i in range(ask.n)]
        candidates = [_candidate(list(_parts(a, whole=True)), i, _finish(a), a.logprobs) for i, a in enumerate(answers)]
        return _reply(ask, candidates, None if behaviour.reports is Reports.MISSING else behaviour.tokens)

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[SseFrame]:
        """One candidate a chunk. Usage is on every one, cumulative; the last carries content, finish and true count."""
        steps: list[Json] = []
        for i in range(ask.n):
            answer = behaviour.answer(ask, i)
            parts = list(_parts(answer, whole=False))
            steps += [_candidate([part], i, None, answer.logprobs) for part in parts[:-1]]
            steps.append(_candidate(parts[-1:], i, _finish(answer), answer.logprobs))
        silent, size = behaviour.reports is Reports.MISSING, len(steps)
        return [
            SseFrame(_reply(ask, [step], None if silent else behaviour.tokens.share(k, size)), content=True)
            for k, step in enumerate(steps, start=1)
        ]

    def error(self, fault: Fault) -> tuple[int, object]:
        code, status, message = _ERRORS.get(fault.kind, (400, "INVALID_ARGUMENT", fault.message))
        return code, {"error": {"code": code, "message": message, "status": status, **_details(fault.kind)}}

    def error_frames(self, fault: Fault) -> list[SseFrame]:
        return [SseFrame(self.error(fault)[1])]


def _check(body: Json, config: Json) -> None:
    """What the real server refuses."""
    for known, given, place in ((FIELDS, body, ""), (CONFIG, config, " at 'generation_config'")):
        if unknown := set(given) - known:
            raise BadRequest(f'Invalid JSON payload received. Unknown name "{min(unknown)}"{place}: Cannot find field.')
    if not rows(body.get("contents")):
        raise BadRequest("* GenerateContentRequest.contents: contents is not specified")
    if {row.get("role", "user") for row in rows(body["contents"])} - {"user", "model", "function"}:
        raise BadRequest("Please use a valid role: user, model.")
    if len({"thinkingBudget", "thinkingLevel"} & set(record(config.get("thinkingConfig")))) == 2:
        raise BadRequest("You can only set only one of thinking budget and thinking level.")


def _either(value: Json, camel: str) -> object:
    """Google reads both spellings of a field."""
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in camel)
    return value.get(camel, value.get(snake))


def _parts(answer: Answer, *, whole: bool) -> Iterator[Json]:
    """Thoughts, text and calls; calls always arrive in one piece."""
    thoughts = ("".join(answer.reasoning),) if whole and answer.reasoning else answer.reasoning
    yield from ({"text": piece, "thought": True} for piece in thoughts)
    text = ("".join(answer.text),) if whole and answer.text else answer.text
    yield from ({"text": piece} for piece in text)
    for call in answer.calls:
        yield {
            "functionCall": {"name": call.name, "args": msgspec.json.decode(call.arguments)},
            "thoughtSignature": "c2ln",
        }


def _finish(answer: Answer) -> str:
    return "SAFETY" if answer.refusal else _FINISH[answer.finish]


def _candidate(parts: list[Json], index: int, finish: str | None, logprobs: bool) -> Json:
    content: Json = {"role": "model", **({"parts": parts} if parts else {})}
    chosen = [{"token": part.get("text", ""), "tokenId": 1, "logProbability": -0.25} for part in parts]
    tokens = {"logprobsResult": {"chosenCandidates": chosen, "topCandidates": []}} if logprobs else {}
    return {"content": content, **({"finishReason": finish} if finish else {}), "index": index, **tokens}


def _reply(ask: Ask, candidates: list[Json], tokens: Tokens | None) -> Json:
    usage = {} if tokens is None else {"usageMetadata": _usage(tokens.choices(ask.n))}
    return {
        "candidates": candidates,
        **usage,
        "modelVersion": ask.served or f"{ask.model}-001",
        "responseId": "resp_upstream",
    }


def _usage(tokens: Tokens) -> Json:
    """Thoughts stand outside the candidates; a count of nothing is left out."""
    thoughts = {"thoughtsTokenCount": tokens.reasoning} if tokens.reasoning else {}
    cached = {"cachedContentTokenCount": tokens.cache_read} if tokens.cache_read else {}
    counts = {"promptTokenCount": tokens.input, "candidatesTokenCount": tokens.visible, **cached, **thoughts}
    detail = [{"modality": "TEXT", "tokenCount": tokens.input}]
    return {**counts, "totalTokenCount": tokens.input + tokens.output, "promptTokensDetails": detail}


def _details(kind: str) -> Json:
    """The same message stands for a rate and for a spent quota: only the details tell them apart."""
    prefix = "type.googleapis.com/google.rpc"
    if kind == "auth":
        return {"details": [{"@type": f"{prefix}.ErrorInfo", "reason": "API_KEY_INVALID"}]}
    if kind not in ("rate", "quota"):
        return {}
    period = "PerMinute" if kind == "rate" else "PerDay"
    violation = {"quotaId": f"GenerateRequests{period}PerProjectPerModel-FreeTier"}
    failure = {"@type": f"{prefix}.QuotaFailure", "violations": [violation]}
    retry = {"@type": f"{prefix}.RetryInfo", "retryDelay": f"{RETRY_AFTER_S}s"}
    return {"details": [failure, retry]}
