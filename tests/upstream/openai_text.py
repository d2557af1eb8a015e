"""`/v1/completions`, `/v1/embeddings` and `/v1/models`, the same at every provider that has them."""

import base64
import struct
from collections.abc import Iterator

from tests.upstream.ask import Ask, Json, Refused
from tests.upstream.behaviours import BEHAVIOURS, EMBEDDING, Answer, Behaviour, Reports
from tests.upstream.errors import Fault
from tests.upstream.flavours import Flavour
from tests.upstream.openai_chat import CREATED, DONE, interleave, read
from tests.upstream.sse import Frame

VECTOR = (0.25, -0.5, 0.125, 1.0)
"""Of every input; exact in 32-bit floats, so that both encodings are equal."""


class OpenAICompletions:
    newline = "\n"
    preamble = ""

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour

    def ask(self, body: Json, ask: Ask) -> Ask:
        if "prompt" not in body:
            raise Refused("Missing required parameter: 'prompt'.", "prompt")
        return read(body, self._flavour)

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        choices = [_choice("".join(a.text), i, a, a.finish) for i, a in enumerate(_answers(ask, behaviour))]
        return {**_envelope(ask, self._flavour), "choices": choices, **self._usage(ask, behaviour)}

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[Frame]:
        choices = interleave([list(_pieces(a, i)) for i, a in enumerate(_answers(ask, behaviour))])
        chunks: list[Json] = [{**_envelope(ask, self._flavour), "choices": [choice]} for choice in choices]
        usage = self._usage(ask, behaviour) if ask.wants_usage or self._flavour.always_usage else {}
        if behaviour.reports is Reports.WITH_CONTENT:
            chunks[-1].update(usage)
        elif usage:
            chunks.append({**_envelope(ask, self._flavour), "choices": [], **usage})
        return [*(Frame(chunk, content=bool(chunk["choices"])) for chunk in chunks), DONE]

    def error(self, fault: Fault) -> tuple[int, object]:
        return self._flavour.error(fault)

    def error_frames(self, fault: Fault) -> list[Frame]:
        return [Frame(self.error(fault)[1]), DONE]

    def _usage(self, ask: Ask, behaviour: Behaviour) -> Json:
        n = 1 if self._flavour.one_choice else ask.n
        counts = self._flavour.usage(self._flavour.reported(behaviour.tokens.choices(n)))
        return {} if behaviour.reports is Reports.MISSING else {"usage": counts}


class OpenAIEmbeddings:
    newline = "\n"
    preamble = ""

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour

    def ask(self, body: Json, ask: Ask) -> Ask:
        if "input" not in body:
            raise Refused("Missing required parameter: 'input'.", "input")
        return Ask(model=str(body.get("model", "")), body=body)

    def whole(self, ask: Ask, behaviour: Behaviour) -> Json:
        count = _inputs(ask.body["input"])
        vector = _base64() if ask.body.get("encoding_format") == "base64" else list(VECTOR)
        rows = [{"object": "embedding", "index": i, "embedding": vector} for i in range(count)]
        spent = EMBEDDING.input * count
        reply: Json = {"object": "list", "data": rows, "model": self._flavour.served.format(model=ask.model)}
        usage = {"usage": {"prompt_tokens": spent, "total_tokens": spent}}
        return {**reply, **({} if behaviour.reports is Reports.MISSING else usage)}

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[Frame]:
        raise Refused("Embeddings are not streamed.", "stream")

    def error(self, fault: Fault) -> tuple[int, object]:
        return self._flavour.error(fault)

    def error_frames(self, fault: Fault) -> list[Frame]:
        return []


def models() -> Json:
    """The list of behaviours, as `/v1/models` gives it."""
    rows = [{"id": name, "object": "model", "created": CREATED, "owned_by": "upstream"} for name in BEHAVIOURS]
    return {"object": "list", "data": rows}


def _inputs(value: object) -> int:
    """One text, or one list of token ids, is one input."""
    return len(value) if isinstance(value, list) and not isinstance(value[0], int) else 1


def _base64() -> str:
    return base64.b64encode(struct.pack(f"<{len(VECTOR)}f", *VECTOR)).decode()


def _answers(ask: Ask, behaviour: Behaviour) -> Iterator[Answer]:
    return (behaviour.answer(ask, i) for i in range(ask.n))


def _envelope(ask: Ask, flavour: Flavour) -> Json:
    served = flavour.served.format(model=ask.model)
    return {"id": "cmpl-upstream", "object": "text_completion", "created": CREATED, "model": served}


def _choice(text: str, index: int, answer: Answer, finish: str | None) -> Json:
    """One choice or one chunk of it; the whole text plays one token."""
    logprobs = {"tokens": [text], "token_logprobs": [-0.25], "top_logprobs": [{text: -0.25}], "text_offset": [0]}
    known = logprobs if answer.logprobs and text else None
    return {"index": index, "text": text, "logprobs": known, "finish_reason": finish}


def _pieces(answer: Answer, index: int) -> Iterator[Json]:
    yield from (_choice(piece, index, answer, None) for piece in answer.text)
    yield _choice("", index, answer, answer.finish)
