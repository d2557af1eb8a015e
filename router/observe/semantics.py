"""OpenTelemetry's names for what a gateway knows: GenAI semantic conventions, as of 1.42 (status: development).

https://github.com/open-telemetry/semantic-conventions-genai
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from router.observe.observed import Observed, plain
from router.types.attempt import Attempt
from router.types.money import NANO_PER_USD
from router.types.request import Endpoint

Attribute = str | bool | int | float | list[str]
OPERATIONS = {
    Endpoint.CHAT: "chat",
    Endpoint.RESPONSES: "chat",
    Endpoint.COMPLETIONS: "text_completion",
    Endpoint.EMBEDDINGS: "embeddings",
}
PATHS = {
    Endpoint.CHAT: "/v1/chat/completions",
    Endpoint.RESPONSES: "/v1/responses",
    Endpoint.COMPLETIONS: "/v1/completions",
    Endpoint.EMBEDDINGS: "/v1/embeddings",
}
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Our ids of providers that have another well-known name there."""
BENIGN = ("ok", "client_gone", "outrun")
"""Outcomes that are no error of the target."""


def provider(identifier: str) -> str:
    return _PROVIDERS.get(identifier, identifier)


def common(observed: Observed, one: Attempt) -> dict[str, Attribute]:
    """What metrics tell apart: names of the policy and of the catalog."""
    found: dict[str, Attribute] = {
        "gen_ai.operation.name": OPERATIONS[observed.endpoint],
        "gen_ai.provider.name": provider(one.target.provider.id),
        "gen_ai.request.model": one.target.model.name,
        "lowpass.target": one.target.id,
    }
    if one.outcome not in BENIGN:
        found["error.type"] = str(one.outcome)
    return found


def attempt(observed: Observed, one: Attempt) -> dict[str, Attribute]:
    """Of a call of a target."""
    optional: Mapping[str, Attribute | None] = {
        "gen_ai.response.model": plain(one.model_served) or None,
        "gen_ai.response.finish_reasons": [plain(one.finish_reason)] if one.finish_reason else None,
        "gen_ai.response.time_to_first_chunk": _first(observed, one),
        "http.response.status_code": one.status,
        "lowpass.attempt.role": one.role or None,
        "lowpass.region": one.region or None,
        "lowpass.thinking_cost_nano_usd": one.cost.thinking,
        **_server(one.target.base_url),
        **_usage(one),
    }
    return {
        **common(observed, one),
        "gen_ai.request.stream": observed.stream,
        "lowpass.outcome": str(one.outcome),
        "lowpass.effort": one.thinking,
        "lowpass.redacted": one.redacted,
        "lowpass.cost_usd": one.cost.nano / NANO_PER_USD,
        "lowpass.cost_nano_usd": one.cost.nano,
        **{name: value for name, value in optional.items() if value is not None},
    }


def request(observed: Observed) -> dict[str, Attribute]:
    """Of all that a client asked for."""
    found: dict[str, Attribute] = {
        "http.request.method": "POST",
        "http.route": PATHS[observed.endpoint],
        "http.response.status_code": observed.status,
        "gen_ai.operation.name": OPERATIONS[observed.endpoint],
        "lowpass.request.id": observed.id,
        "lowpass.attempts": len(observed.attempts),
        "lowpass.cost_usd": observed.cost / NANO_PER_USD,
        "lowpass.cost_nano_usd": observed.cost,
    }
    if observed.error is not None:
        found["error.type"] = str(observed.error)
    return found | _decided(observed)


def _decided(observed: Observed) -> dict[str, Attribute]:
    decision, served = observed.decision, observed.served
    if decision is None:
        return {}
    found: dict[str, Attribute] = {
        "lowpass.route": decision.plan.route,
        "lowpass.strategy": decision.plan.strategy,
        "lowpass.class": decision.classification.data_class,
        "lowpass.task": decision.classification.task.value,
        "lowpass.policy": decision.policy,
    }
    return found if served is None else found | {"lowpass.target": served.target.id}


def _usage(one: Attempt) -> dict[str, int | None]:
    usage = one.usage
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_total,
        "gen_ai.usage.output_tokens": usage.output_total,
        "gen_ai.usage.reasoning.output_tokens": usage.output_reasoning,
        "gen_ai.usage.cache_read.input_tokens": usage.cached or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.written or None,
    }


def _first(observed: Observed, one: Attempt) -> float | None:
    return one.first_ms / 1000 if observed.stream and one.first_ms is not None else None


def _server(url: str) -> dict[str, Attribute | None]:
    """Without path, user or password."""
    parts = urlsplit(url)
    return {"server.address": parts.hostname, "server.port": parts.port or (443 if parts.scheme == "https" else 80)}
