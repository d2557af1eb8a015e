"""A policy made of a LiteLLM proxy's configuration (`lowpass import litellm`), and what of it has no counterpart."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from router.config.load import shipped
from router.errors import ConfigError
from router.types.price import NANO_PER_USD, Rates
from router.types.yaml_file import Loc, Problem, YamlFile, construct, dotted, in_order, load_data, parse, read_bytes

_TABLES: dict[str, Any] = load_data(__file__, "litellm.yaml")
_UNKNOWN_CONTEXT, _UNKNOWN_OUTPUT = 32_768, 4_096
"""Tokens of a model of which nothing says more."""
_PATHS = {"azure": "/openai/v1", "ollama": "/v1"}
"""Behind the address of a server, where it names none."""
_WORST_CASE = {"input": 20, "output": 100}
"""USD per million tokens of a target without a price."""
_PRICES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cache_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
}
_CAPABILITIES = {
    "tools": "supports_function_calling",
    "vision": "supports_vision",
    "json_schema": "supports_response_schema",
}


def policy_of(config: Path) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """The policy as plain values, and what needs a look, each with its place. Raises `ConfigError` where the file is no
    LiteLLM configuration."""
    source = YamlFile(str(config), noun="LiteLLM configuration", start="'model_list:'")
    parse(read_bytes(config, source), source)
    settings = construct(source.root, source) if source.root is not None else None
    if not isinstance(settings, dict) or source.problems:
        raise ConfigError(tuple(source.problems))
    return LitellmImport(source, settings).policy(), in_order(source.problems)


class LitellmImport:
    """One configuration. What is understood is taken out of `rest`; what stays there is reported with its place."""

    def __init__(self, source: YamlFile, settings: dict[str, Any]) -> None:
        self._source, self._rest = source, settings
        self._litellm: dict[str, Any] = settings.get("litellm_settings") or {}
        self._router: dict[str, Any] = settings.get("router_settings") or {}
        self._fallbacks = {name: others for key in self._fallback_keys() for name, others in self._named(key)}
        self._targets: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, dict[str, float]] = {}
        """By the name that clients send: targets and their weights."""

    def policy(self) -> dict[str, Any]:
        deployments = self._rest.get("model_list") or []
        counts = Counter(str(row.get("model_name")) for row in deployments if isinstance(row, dict))
        for index, row in enumerate(deployments):
            try:
                self._deployment(("model_list", index), row, counts)
            except (TypeError, ValueError) as error:
                problem = f"this deployment can't be read ({error})"
                self._source.report(("model_list", index), problem, "mend it, or leave it out")
                row.clear()
        aliases = {name: _slug(name) for name in self._groups if _slug(name) != name}
        for alias, row in (self._router.pop("model_group_alias", None) or {}).items():
            aliases[alias] = _slug(str(row["model"] if isinstance(row, dict) else row))
        policy: dict[str, Any] = {"version": 1, "targets": self._targets, "routes": dict(self._routes())}
        if aliases:
            policy["aliases"] = aliases
        if budgets := [*self._budgets()]:
            policy["budgets"] = budgets
        if any(
            isinstance(target["model"], dict) and not target["model"].get("price") for target in self._targets.values()
        ):
            policy["unpriced"] = _WORST_CASE
        self._report((), self._rest)
        return policy

    def _fallback_keys(self) -> Iterator[object]:
        """Fallbacks of both sections: lowpass asks the next target whatever the failure was."""
        for section in (self._litellm, self._router):
            for kind in ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks"):
                yield section.pop(kind, None)
        for section in (self._litellm, self._router):
            yield [{"*": others} for others in [section.pop("default_fallbacks", None)] if others]

    @staticmethod
    def _named(rows: object) -> Iterator[tuple[str, list[str]]]:
        for row in rows if isinstance(rows, list) else []:
            yield from row.items() if isinstance(row, dict) else ()

    def _deployment(self, loc: Loc, row: object, counts: Mapping[str, int]) -> None:
        if not isinstance(row, dict) or not isinstance(params := row.get("litellm_params"), dict):
            self._source.report(loc, "no deployment", "give it a model_name and litellm_params")
            return
        name, info = str(row.pop("model_name", "")), row.get("model_info") or {}
        sent = str(params.pop("model", ""))
        if "*" in name + sent:
            self._source.report(loc, "a wildcard stands for models that are not named", "list the models that are used")
            row.clear()
            return
        weight, target = float(params.pop("weight", 1)), self._target((*loc, "litellm_params"), sent, params, info)
        group = self._groups.setdefault(name, {})
        alone = counts[name] == 1 and not self._others(name)
        identifier = _slug(name if alone else f"{name}-{len(group) + 1}")
        group[identifier], self._targets[identifier] = weight, target

    def _target(self, loc: Loc, sent: str, params: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
        provider, model = self._model(loc, sent, params.pop("custom_llm_provider", None))
        target: dict[str, Any] = {"model": f"{provider}/{model}"}
        priced = any(key in params or key in info for key in _PRICES.values())
        if f"{provider}/{model}" not in shipped().models or priced or provider == "azure":
            target["model"] = self._written_out(loc, provider, model, params, info)
        base = params.pop("api_base", None) or params.pop("base_url", None)
        if base:
            address = _variable(str(base)).rstrip("/")
            target["base_url"] = address + {"azure": "/openai/v1", "ollama": "/v1"}.get(provider, "") * (
                "/v1" not in address
            )
        params.pop("api_version", None)  # the address has none
        if key := params.pop("api_key", None):
            target["api_key"] = self._key(loc, str(key), provider)
        elif variable := shipped().providers[provider].key_env:
            target["api_key"] = f"${{{variable}}}"
        if effort := params.pop("reasoning_effort", None):
            target["effort"] = effort
        headers = {**(params.pop("extra_headers", None) or {}), **(params.pop("headers", None) or {})}
        if organisation := params.pop("organization", None):
            headers["OpenAI-Organization"] = organisation
        if headers:
            target["headers"] = {header: _variable(str(value)) for header, value in headers.items()}
        total = params.pop("timeout", self._litellm.get("request_timeout", self._router.get("timeout")))
        first = params.pop("stream_timeout", self._router.get("stream_timeout"))
        times = {"total_ms": total, "first_ms": min(filter(None, (first, total)), default=None)}
        if any(times.values()):
            target["timeouts"] = {key: round(float(seconds) * 1000) for key, seconds in times.items() if seconds}
        asked = (params.pop("max_retries", None), params.pop("num_retries", None))
        usual = (self._router.get("num_retries"), self._litellm.get("num_retries"))
        if (retries := next((number for number in (*asked, *usual) if number is not None), None)) is not None:
            target["retries"] = min(int(retries), 10)
        return target

    def _model(self, loc: Loc, sent: str, stated: str | None) -> tuple[str, str]:
        """lowpass' provider, and the model's name there."""
        prefix, _, rest = sent.partition("/")
        known = _TABLES["providers"]
        if stated in known:
            return known[stated], sent
        if rest and prefix in known:
            return known[prefix], rest.removeprefix("responses/").removeprefix("converse/")
        guess = next((place for pattern, place in _TABLES["unprefixed"].items() if fnmatch(sent, pattern)), None)
        if guess is None:
            remedy = "name a provider of docs/providers.md; `openai` speaks to any server of its kind"
            self._source.report((*loc, "model"), f"the provider of '{sent}' is not known here", remedy)
        return guess or "openai", sent

    def _written_out(
        self, loc: Loc, provider: str, model: str, params: dict[str, Any], info: dict[str, Any]
    ) -> dict[str, Any]:
        """A model that the catalog does not have, or has at another price."""
        known = shipped().models.get(f"{provider}/{model}") or shipped().models.get(
            f"openai/{info.pop('base_model', model)}"
        )
        context = info.pop("max_input_tokens", None) or (known and known[0].context)
        output = info.pop("max_output_tokens", None) or info.pop("max_tokens", None) or (known and known[0].max_output)
        if not context or not output:
            remedy = "write its context, max_output and capabilities; until then they are guessed"
            self._source.report((*loc, "model"), f"nothing says how much '{model}' can read and write", remedy)
        mode = info.pop("mode", "chat")
        kind = {"embedding": "embeddings", "completion": "completions"}.get(mode, "chat")
        capabilities = [
            kind,
            *(name for name, key in _CAPABILITIES.items() if info.pop(key, name == "tools") and kind == "chat"),
        ]
        written = {"name": model, "provider": provider, "context": int(context or _UNKNOWN_CONTEXT)}
        written |= {"max_output": int(output or _UNKNOWN_OUTPUT), "capabilities": capabilities}
        price = {}
        for name, key in _PRICES.items():
            rate = params.pop(key, None)
            if (rate := info.pop(key, None) if rate is None else rate) is not None:
                price[name] = round(float(rate) * 1_000_000, 6)
        if {"input", "output"} <= price.keys():
            written["price"] = price
        elif shipped().providers[provider].local:
            written["price"] = {"input": 0, "output": 0}
        elif not known:
            remedy = "write its `price`; until then it is charged at `unpriced`, the worst case"
            self._source.report((*loc, "model"), f"nothing says what '{model}' costs", remedy)
        else:
            rates = {name: getattr(known[0].price, name, None) for name in Rates.__struct_fields__}
            written["price"] = {name: rate / NANO_PER_USD for name, rate in rates.items() if rate is not None}
        return written

    def _key(self, loc: Loc, key: str, provider: str) -> str:
        """A reference to the environment. A key in clear is never copied."""
        if key.startswith("os.environ/"):
            return _variable(key)
        variable = shipped().providers[provider].key_env or f"{provider.upper()}_API_KEY"
        self._source.report((*loc, "api_key"), "a key in clear is not copied", f"export it as {variable}")
        return f"${{{variable}}}"

    def _others(self, name: str) -> list[str]:
        """Names that are asked when this one fails."""
        others = [other for other in self._fallbacks.get(name, self._fallbacks.get("*", [])) if other != name]
        return [other for other in others if isinstance(other, str)]

    def _routes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """A route for each name that stands for several targets, and `auto`, which goes by cost of pass."""
        strategy = self._router.pop("routing_strategy", "simple-shuffle")
        if strategy not in ("simple-shuffle", "cost-based-routing"):
            remedy = "shared by weight here; queues and latency count where a route has a deadline: docs/routing.md"
            self._source.report(("router_settings", "routing_strategy"), f"'{strategy}' has no counterpart", remedy)
        for name, group in self._groups.items():
            others = [target for other in self._others(name) for target in self._groups.get(other, ())]
            targets = [*dict.fromkeys((*group, *others))]
            if strategy == "cost-based-routing" and len(targets) > 1:
                yield _slug(name), {"strategy": {"kind": "cheapest", "targets": targets}}
            elif len(group) > 1:
                weights = {target: group.get(target, 0.0) for target in targets}
                yield _slug(name), {"strategy": {"kind": "weighted", "weights": weights}}
            elif _slug(name) not in self._targets:
                yield _slug(name), {"strategy": {"kind": "ordered", "targets": targets}}
        chats = [name for name, target in self._targets.items() if "chat" in _capabilities(target["model"])]
        if chats and "auto" not in map(_slug, self._groups):
            yield "auto", {"strategy": {"kind": "cost_of_pass", "targets": chats}, "failure_cost_usd": 0.01}

    def _budgets(self) -> Iterator[dict[str, Any]]:
        limit = self._litellm.pop("max_budget", None)
        window = self._litellm.pop("budget_duration", None)
        if limit:
            yield {"id": "all", "limit_usd": float(limit)} | _window(window)
        for provider, row in (self._router.pop("provider_budget_config", None) or {}).items():
            place = _TABLES["providers"].get(provider, provider)
            targets = [name for name, target in self._targets.items() if _provider_of(target) == place]
            if targets:
                size = float(row.get("budget_limit") or row["max_budget"])
                period = row.get("time_period") or row.get("budget_duration")
                yield {"id": provider, "limit_usd": size, "targets": targets} | _window(period)

    def _report(self, loc: Loc, value: object) -> None:
        """What was not understood, each key with what to do about it."""
        understood = {"timeout", "request_timeout", "num_retries", "stream_timeout", "drop_params", "set_verbose", "id"}
        if isinstance(value, dict | list) and len(loc) < (4 if loc[:1] == ("model_list",) else 2):
            for key, child in value.items() if isinstance(value, dict) else enumerate(value):
                if key not in understood:
                    self._report((*loc, key), child)
        elif value is not None and value != {}:
            key = dotted(loc)
            remedy = next(
                (remedy for pattern, remedy in _TABLES["remedies"] if fnmatch(key, pattern)), "it is left out"
            )
            self._source.report(self._source.key(loc), f"'{key}' has no counterpart", remedy)


def _provider_of(target: Mapping[str, Any]) -> str:
    model = target["model"]
    return model["provider"] if isinstance(model, dict) else str(model).split("/")[0]


def _capabilities(model: str | Mapping[str, Any]) -> Collection[str]:
    return shipped().models[model][0].capabilities if isinstance(model, str) else model["capabilities"]


def _slug(name: str) -> str:
    """As a policy may name a target."""
    return re.sub(r"[^\w.:/-]+", "-", name, flags=re.ASCII).strip("-._:/")[:128] or "model"


def _variable(text: str) -> str:
    return re.sub(r"^os\.environ/(\w+)$", r"${\1}", text)


def _window(duration: object) -> dict[str, Any]:
    if duration is None:
        return {"window": "lifetime"}
    window = _TABLES["windows"].get(str(duration))
    return {"window": window or {"rolling": str(duration)}}
