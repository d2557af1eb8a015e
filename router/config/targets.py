"""One row of `targets` and the catalog → a Target."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import structs
from pydantic import SecretStr

from router.config.config import Catalog
from router.config.policy import ModelRow, TargetRow, TimeoutsRow
from router.config.shape import did_you_mean
from router.config.source import Loc, Source
from router.config.specialists import check_special, prompted
from router.config.terms import terms
from router.config.thinking import as_served
from router.types.engine import Served
from router.types.money import nano_from_usd
from router.types.price import Price
from router.types.secret import Secret
from router.types.target import Capability, Contract, Licence, Model, Provider, Target, Thinking, Timeouts

_SERVED = frozenset({Capability.CHAT, Capability.COMPLETIONS, Capability.EMBEDDINGS})


class TargetBuilder:
    """`engines`: those that targets may name; `price_version` marks prices that the policy states itself.

    `worst` is charged for models without a price; None refuses them.
    """

    def __init__(
        self,
        source: Source,
        catalog: Catalog,
        engines: Mapping[str, Served],
        *,
        worst: Price | None,
        price_version: str,
    ) -> None:
        self._source, self._catalog, self._engines = source, catalog, engines
        self._worst, self._version = worst, price_version
        self._called: dict[str, str] = {}

    def build(self, name: str, row: TargetRow) -> Target | None:
        """None where the model or its provider is unknown: nothing else can be judged then."""
        loc: Loc = ("targets", name)
        found = self._inline(loc, row.model) if isinstance(row.model, ModelRow) else self._card(loc, row.model)
        if found is None:
            return None
        model, provider = found
        engine = None if row.engine is None else self._engine(loc, row, row.engine, provider)
        if row.adapter is not None and row.engine is None:
            what = "an adapter is served by an engine, and there is none"
            self._report((*loc, "adapter"), what, "add engine, or write the model out under the adapter's name")
        if engine is not None:
            model = self._as_served(loc, row, model, engine)
            model = structs.replace(model, thinking=as_served(model.thinking, engine))
        check_special(self._source, loc, row, model)
        asked, prompt = provider, None
        if row.prompt is not None:
            model, asked, prompt = prompted(self._source, loc, row.prompt, row.languages, model, provider)
        self._check_effort(loc, row.effort, model)
        if not (engine and engine.mistakes):
            self._check_price(loc, model)
        return Target(
            id=name,
            model=model,
            provider=asked,
            base_url=self._address(loc, row, provider) if row.engine is None else engine.urls[0] if engine else "",
            api_key=self._key(loc, row.api_key, provider),
            effort=row.effort,
            headers=dict(row.headers),
            region=row.region,
            terms=terms(self._source, (*loc, "terms"), row.terms, provider),
            timeouts=_timeouts(row.timeouts),
            retries=row.retries,
            max_event_bytes=row.max_event_bytes,
            hourly=_hourly(row, engine),
            engine=engine,
            max_wait_ms=row.max_wait_ms,
            tasks=frozenset(row.tasks),
            languages=frozenset(row.languages),
            pass_rate=row.pass_rate,
            prompt=prompt,
            abandoned=row.abandoned,
        )

    def _report(self, loc: Loc, what: str, remedy: str) -> None:
        self._source.report(self._source.node(loc), what, remedy)

    def _report_absence(self, loc: Loc, what: str, remedy: str) -> None:
        """Unless what is absent was there, but wrong."""
        if loc not in self._source.dropped:
            self._report(loc, what, remedy)

    def _card(self, loc: Loc, identifier: str) -> tuple[Model, Provider] | None:
        card = self._catalog.models.get(identifier)
        if card is None:
            word = self._source.text((*loc, "model"))
            what = f"the catalog has no model '{word}'"
            remedy = did_you_mean(word, self._catalog.models)
            self._report((*loc, "model"), what, f"{remedy} Or write it out: {{name: …, provider: …, …}}")
            return None
        model, provider = card
        return model, self._catalog.providers[provider]

    def _inline(self, loc: Loc, row: ModelRow) -> tuple[Model, Provider] | None:
        provider = self._catalog.providers.get(row.provider)
        if provider is None:
            word = self._source.text((*loc, "model", "provider"))
            remedy = did_you_mean(word, self._catalog.providers)
            self._report((*loc, "model", "provider"), f"unknown provider '{word}'", remedy)
            return None
        self._check_inline((*loc, "model"), row)
        model = Model(
            id=f"{row.provider}/{row.name}",
            name=row.name,
            context=row.context,
            max_output=row.max_output,
            capabilities=frozenset(row.capabilities),
            thinking=_thinking(row),
            price=row.price.price(self._version) if row.price else self._worst,
            licence=self._catalog.licences.get(row.licence, Licence(id=row.licence)),
            parameters_b=row.parameters_b,
            active_b=row.active_b,
            scores=dict(row.scores),
        )
        return model, provider

    def _check_inline(self, loc: Loc, row: ModelRow) -> None:
        if row.max_output > row.context:
            self._report((*loc, "max_output"), "max_output is larger than context", "lower it, or raise context")
        if not _SERVED & set(row.capabilities):
            what = "a model without chat, completions or embeddings serves nothing"
            self._report((*loc, "capabilities"), what, "add chat to its capabilities")
        thinking = row.thinking
        if thinking and len(thinking.levels) != len(thinking.tokens):
            what = f"{len(thinking.levels)} levels but {len(thinking.tokens)} tokens"
            self._report((*loc, "thinking"), what, "give each level its typical tokens")
        if thinking and (thinking.contract is Contract.NONE) == bool(thinking.levels):
            what = f"contract {thinking.contract} and {len(thinking.levels)} levels contradict each other"
            self._report((*loc, "thinking"), what, "list levels for a model that thinks, none for one that doesn't")

    def _check_effort(self, loc: Loc, effort: str | None, model: Model) -> None:
        if effort is None or effort in model.thinking.levels:
            return
        word = self._source.text((*loc, "effort"))
        if model.thinking.levels:
            what = f"{model.id} has no effort '{word}'"
            self._report((*loc, "effort"), what, f"use one of {', '.join(model.thinking.levels)}")
        else:
            self._report((*loc, "effort"), f"{model.id} has no thinking to set", "remove effort")

    def _check_price(self, loc: Loc, model: Model) -> None:
        if model.price is None:
            what = f"{model.id} has no price and the policy refuses unpriced models"
            remedy = "add price: {input: …, output: …} (USD per million tokens), or set unpriced to the rates to charge"
            self._report_absence((*loc, "model", "price"), what, remedy)

    def _address(self, loc: Loc, row: TargetRow, provider: Provider) -> str:
        url = row.base_url or provider.base_url
        self._check_owner(loc, url, provider)
        if "{" in url:
            what = f"the address of {provider.id} has a blank to fill in"
            self._report_absence((*loc, "base_url"), what, f"set base_url: {provider.base_url} with your own values")
        return url.rstrip("/")

    def _check_owner(self, loc: Loc, url: str, provider: Provider) -> None:
        """What a provider promises, and that a model runs here, is not true at somebody else's address."""
        owners = [one for one in self._catalog.providers.values() if not one.local and _is_of(url, one)]
        if owners and provider not in owners:
            what = f"this address is of {owners[0].id}, not of {provider.id}, whose terms would be taken to hold there"
            self._report((*loc, "base_url"), what, f"set provider: {owners[0].id}, or another base_url")

    def _engine(self, loc: Loc, row: TargetRow, name: str, provider: Provider) -> Served | None:
        word = self._source.text((*loc, "engine"))
        if row.base_url:
            what = "engine and base_url exclude each other"
            self._report(
                (*loc, "base_url"), what, "keep engine to have it launched, or base_url to reach a running one"
            )
        elif not provider.local:
            what = f"an engine can't serve a model of {provider.id}"
            self._report((*loc, "engine"), what, "remove engine, or name a local model")
        elif name not in self._engines:
            self._report((*loc, "engine"), f"unknown engine '{word}'", did_you_mean(word, self._engines))
        engine = self._engines.get(name)
        for what, remedy in engine.mistakes if engine else ():
            self._report((*loc, "engine"), what, remedy)
        if engine and (other := self._called.setdefault(engine.name, name)) != name:
            what = f"the engine '{engine.name}' has two specs, {other} and {name}"
            self._report((*loc, "engine"), what, "give one of them another name")
        return engine

    def _as_served(self, loc: Loc, row: TargetRow, model: Model, engine: Served) -> Model:
        """The model by the name that the engine has for it, or for the adapter; without a price that somebody stands
        for, at the one that is planned for this engine."""
        if engine.planned and (model.price is None or model.price.assumed or model.price.version.startswith("planned")):
            model = structs.replace(model, price=engine.planned)
        if row.adapter is None:
            return structs.replace(model, name=engine.model) if engine.model else model
        if row.adapter not in engine.adapters:
            word = self._source.text((*loc, "adapter"))
            what, names = f"{engine.name} has no adapter '{word}'", sorted(engine.adapters)
            remedy = did_you_mean(word, names) if names else "list it among the adapters of its spec, if it is a vLLM"
            self._report((*loc, "adapter"), what, remedy)
        return structs.replace(model, name=row.adapter)

    def _key(self, loc: Loc, key: SecretStr | None, provider: Provider) -> Secret | None:
        value = key.get_secret_value() if key else ""
        if not value and provider.key_env:
            what = f"{provider.id} needs an API key"
            remedy = f'add api_key: "${{{provider.key_env}}}" and export {provider.key_env}'
            self._report_absence((*loc, "api_key"), what, remedy)
        if any(not "!" <= character <= "~" for character in value):
            what = "the key has a blank, a line break or a character that no key has"
            self._report((*loc, "api_key"), what, "set it without them")
        return Secret(value) if value else None


def _hourly(row: TargetRow, engine: Served | None) -> int | None:
    """The policy's word goes before that of the engine's spec."""
    if row.hourly_usd is not None:
        return nano_from_usd(row.hourly_usd)
    return (engine.hourly or None) if engine else None


def _thinking(row: ModelRow) -> Thinking:
    return Thinking(**row.thinking.model_dump()) if row.thinking else Thinking()


def _timeouts(row: TimeoutsRow) -> Timeouts:
    given: dict[str, int] = row.model_dump(exclude_none=True)
    return Timeouts(**{name.removesuffix("_ms"): value for name, value in given.items()})


def _is_of(url: str, provider: Provider) -> bool:
    """The host is the provider's own, or a part of it; `{…}` in the catalog's stands for any such part."""
    own = (urlsplit(provider.base_url).hostname or "").rpartition("}.")[2]
    return bool(own) and f".{(urlsplit(url).hostname or '').rstrip('.')}".endswith(f".{own}")
