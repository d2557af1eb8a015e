"""Usage as OpenAI's clients read it, with the cost in USD. Unknown reasoning is null, never 0."""

from router.types.attempt import Usage
from router.types.price import usd_json
from router.types.request import Endpoint


def usage_json(endpoint: Endpoint, usage: Usage, cost: int) -> bytes:
    """`cost` in nano-USD: what the whole request cost, failed attempts included."""
    tokens_in, tokens_out = usage.input_total, usage.output_total
    reasoning = b"null" if usage.output_reasoning is None else b"%d" % usage.output_reasoning
    if endpoint is Endpoint.EMBEDDINGS:
        return b'{"prompt_tokens":%d,"total_tokens":%d,"cost":%b}' % (tokens_in, tokens_in, usd_json(cost))
    return _FORMS[endpoint is Endpoint.RESPONSES] % (
        tokens_in,
        tokens_out,
        tokens_in + tokens_out,
        usage.cached,
        usage.written,
        usage.input_audio,
        reasoning,
        usage.output_audio,
        usd_json(cost),
    )


_CHAT = (
    b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d,"audio_tokens":%d},'
    b'"completion_tokens_details":{"reasoning_tokens":%b,"audio_tokens":%d},"cost":%b}'
)
_RESPONSES = (
    b'{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d,'
    b'"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d,"audio_tokens":%d},'
    b'"output_tokens_details":{"reasoning_tokens":%b,"audio_tokens":%d},"cost":%b}'
)
_FORMS = (_CHAT, _RESPONSES)
