"""Translates a LiteLLM configuration into a policy (`lowpass import litellm`), and lists what has no counterpart."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from router.config.load import shipped
from router.errors import ConfigError
from router.types.price import NANO_PER_USD, TokenPrices
from router.types.yaml_file import Loc, Problem, YamlFile, construct, dotted, in_order, load_data, parse, read_bytes

_TABLES: dict[str, Any] = load_data(__file__, "litellm.yaml")
_WORST_CASE = {"input": 20, "output": 100}
"""Rates in USD per million tokens charged for targets without a price."""


def policy_of(config: Path) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """Returns the policy as plain values, and the places that need a look. Raises `ConfigError` if the file is not a
    LiteLLM configuration."""
    source = YamlFile(str(config), noun="LiteLLM configuration", start="'model_list:'")
    parse(read_bytes(config, source), source)
    settings = construct(source.root, source) if source.root is not None else None
    if not isinstance(settings, dict) or source.problems:
        raise ConfigError(tuple(source.problems))
    try:
        policy = LitellmImport(source, settings).policy()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        source.report(
            None, f"a value of another kind than LiteLLM's ({error})", "compare litellm_settings, router_settings"
        )
        raise ConfigError(tuple(source.problems)) from None
    return policy, in_order(source.problems)


class LitellmImport:
    """One configuration. What is translated is removed from `_remaining`; what remains is reported with its place."""

    def __init__(self, source: YamlFile, settings: dict[str, Any]) -> None:
        self._source, self._remaining = source, settings
        sections = [settings.get(name) for name in ("litellm_settings", "router_settings")]
        self._litellm, self._router = [section if isinstance(section, dict) else {} for section in sections]
        self._fallbacks: dict[str, list[str]] = {}
        """Fallbacks of a name, `*` for all names: lowpass asks the next target whatever the failure was."""
        for section in (self._litellm, self._router):
            for kind in ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks"):
                for row in section.pop(kind, None) or ():
                    self._fallbacks |= row
            if others := section.pop("default_fallbacks", None):
                self._fallbacks["*"] = others
        self._targets: dict[str, dict[str, Any]] = {}
        self._known: dict[str, tuple[str, Collection[str]]] = {}
        """Target → (provider, capabilities)."""
        self._groups: dict[str, dict[str, float]] = {}
        """Name that clients send → its targets and their weights."""

    def policy(self) -> dict[str, Any]:
        deployments = self._remaining.get("model_list") or []
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
        models = [target["model"] for target in self._targets.values()]
        if any(isinstance(model, dict) and "price" not in model for model in models):
            policy["unpriced"] = _WORST_CASE
        self._report((), self._remaining)
        return policy

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
        model = target["model"]
        self._known[identifier] = (
            (model["provider"], model["capabilities"])
            if isinstance(model, dict)
            else (model.split("/")[0], shipped().models[model][0].capabilities)
        )

    def _target(self, loc: Loc, sent: str, params: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
        provider, model = self._model(loc, sent, params.pop("custom_llm_provider", None))
        target: dict[str, Any] = {"model": f"{provider}/{model}"}
        priced = any(key in params or key in info for key in _TABLES["prices"].values())
        if f"{provider}/{model}" not in shipped().models or priced or provider == "azure":
            target["model"] = self._written_out(loc, provider, model, params, info)
        if base := params.pop("api_base", None) or params.pop("base_url", None):
            address = _variable(str(base)).rstrip("/")
            target["base_url"] = address + ("" if "/v1" in address else _TABLES["paths"].get(provider, ""))
        params.pop("api_version", None)  # not part of lowpass' URLs
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
        own = (params.pop("max_retries", None), params.pop("num_retries", None))
        usual = (self._router.get("num_retries"), self._litellm.get("num_retries"))
        if (retries := next((number for number in (*own, *usual) if number is not None), None)) is not None:
            target["retries"] = min(int(retries), 10)
        return target

    def _model(self, loc: Loc, sent: str, stated: str | None) -> tuple[str, str]:
        """Returns (lowpass' provider, name of the model there)."""
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
        """Returns a model that the catalog lacks, or has at another price, as a policy writes it out."""
        cards = shipped().models
        card, _ = cards.get(f"{provider}/{model}") or cards.get(f"openai/{info.pop('base_model', model)}") or (None, "")
        sizes = {
            "context": info.pop("max_input_tokens", None) or (card and card.context),
            "max_output": info.pop("max_output_tokens", None)
            or info.pop("max_tokens", None)
            or (card and card.max_output),
        }
        if not all(sizes.values()):
            remedy = "write its context, max_output and capabilities; until then they are guessed"
            self._source.report((*loc, "model"), f"nothing says how much '{model}' can read and write", remedy)
        kind = {"embedding": "embeddings", "completion": "completions"}.get(info.pop("mode", "chat"), "chat")
        more = [
            name for name, key in _TABLES["capabilities"].items() if info.pop(key, name == "tools") and kind == "chat"
        ]
        written: dict[str, Any] = {"name": model, "provider": provider}
        written |= {key: int(size or _TABLES["unknown"][key]) for key, size in sizes.items()}
        written["capabilities"] = sorted(map(str, card.capabilities)) if card else [kind, *more]
        price = {}
        for name, key in _TABLES["prices"].items():
            rate = params.pop(key, None)
            if (rate := info.pop(key, None) if rate is None else rate) is not None:
                price[name] = round(float(rate) * 1_000_000, 6)
        if {"input", "output"} <= price.keys():
            written["price"] = price
        elif shipped().providers[provider].local:
            written["price"] = {"input": 0, "output": 0}
        elif card and card.price:
            rates = {name: getattr(card.price, name) for name in TokenPrices.__struct_fields__}
            written["price"] = {name: rate / NANO_PER_USD for name, rate in rates.items() if rate is not None}
        else:
            remedy = "write its `price`; until then it is charged at `unpriced`, the worst case"
            self._source.report((*loc, "model"), f"nothing says what '{model}' costs", remedy)
        return written

    def _key(self, loc: Loc, key: str, provider: str) -> str:
        """Returns a reference to an environment variable. A key in clear text is never copied."""
        if key.startswith("os.environ/"):
            return _variable(key)
        variable = shipped().providers[provider].key_env or f"{provider.upper()}_API_KEY"
        self._source.report((*loc, "api_key"), "a key in clear is not copied", f"export it as {variable}")
        return f"${{{variable}}}"

    def _others(self, name: str) -> list[str]:
        """Returns the names that are asked if this one fails."""
        others = self._fallbacks.get(name, self._fallbacks.get("*", []))
        return [other for other in others if isinstance(other, str) and other != name]

    def _routes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields a route for each name with several targets, and `auto`, with the strategy `cost_of_pass`."""
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
        chats = [name for name, (_, capabilities) in self._known.items() if "chat" in capabilities]
        if chats and "auto" not in map(_slug, self._groups):
            yield "auto", {"strategy": {"kind": "cost_of_pass", "targets": chats}, "failure_cost_usd": 0.01}

    def _budgets(self) -> Iterator[dict[str, Any]]:
        limit = self._litellm.pop("max_budget", None)
        window = self._litellm.pop("budget_duration", None)
        if limit:
            yield {"id": "all", "limit_usd": float(limit)} | _window(window)
        for provider, row in (self._router.pop("provider_budget_config", None) or {}).items():
            place = _TABLES["providers"].get(provider, provider)
            targets = [name for name, (provider_of, _) in self._known.items() if provider_of == place]
            if targets:
                size = float(row.get("budget_limit") or row["max_budget"])
                period = row.get("time_period") or row.get("budget_duration")
                yield {"id": provider, "limit_usd": size, "targets": targets} | _window(period)

    def _report(self, loc: Loc, value: object) -> None:
        """Reports each key that was not translated, with its remedy."""
        if isinstance(value, dict | list) and len(loc) < (4 if loc[:1] == ("model_list",) else 2):
            for key, child in value.items() if isinstance(value, dict) else enumerate(value):
                if key not in _TABLES["understood"]:
                    self._report((*loc, key), child)
        elif value is not None and value != {}:
            key = dotted(loc)
            remedies = (remedy for pattern, remedy in _TABLES["remedies"] if fnmatch(key, pattern))
            remedy = next(remedies, "it is left out")
            self._source.report(self._source.key(loc), f"'{key}' has no counterpart", remedy)


def _slug(name: str) -> str:
    """Returns a name that is valid in a policy."""
    return re.sub(r"[^\w.:/-]+", "-", name, flags=re.ASCII).strip("-._:/")[:128] or "model"


def _variable(text: str) -> str:
    return re.sub(r"^os\.environ/(\w+)$", r"${\1}", text)


def _window(duration: object) -> dict[str, Any]:
    return {"window": _TABLES["windows"].get(str(duration), {"rolling": str(duration)}) if duration else "lifetime"}
