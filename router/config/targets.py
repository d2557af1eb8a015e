"""Builds the targets of a policy from its rows and the catalog."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import yaml
from jinja2 import StrictUndefined, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec import structs
from pydantic import SecretStr

from router.classify.language import KNOWN, NAMES, english_name
from router.config.policy import Catalog, ModelRow, PromptRow, TargetRow, TermsRow
from router.estimate.tokens import SCALE
from router.types.clock import now_ms
from router.types.price import Price, nano_from_usd
from router.types.target import (
    PROMPT_VARIABLES,
    Capability,
    Contract,
    Licence,
    Model,
    Prompt,
    Provider,
    Secret,
    ServedEngine,
    Target,
    Task,
    Terms,
    Thinking,
    Timeouts,
    Wire,
)
from router.types.yaml_file import Loc, YamlFile, did_you_mean

# The thinking contract of a model at an engine that lowpass launches or watches.

_UNNUMBERED = (Contract.SWITCH, Contract.ALWAYS_ON)
_USUAL_LEVELS = ("none", "low", "medium", "high")
MIN_REPORTED_KEY = 20
"""Length in characters from which a key in the file is reported; shorter ones, such as "EMPTY", are no secrets."""


def as_served(thinking: Thinking, engine: ServedEngine) -> Thinking:
    """Returns the contract at the engine: exact with a reasoning parser, else only the template's switch, if any."""
    if thinking.contract in (Contract.NONE, Contract.LEVEL):
        return thinking
    if engine.thinking_exact:
        numbered = thinking
        if thinking.contract in _UNNUMBERED:
            # A model with only a switch gets the usual levels below its own.
            word, most = (thinking.levels or _USUAL_LEVELS)[-1], (thinking.tokens or (SCALE["high"],))[-1]
            words = _USUAL_LEVELS if thinking.can_stop else _USUAL_LEVELS[1:]
            lower = {level: SCALE[level] for level in words if SCALE[level] < most and level != word}
            numbered = structs.replace(thinking, levels=(*lower, word), tokens=(*lower.values(), most))
        minimum = max(thinking.minimum, engine.thinking_forced + 1)
        return structs.replace(numbered, contract=Contract.EXACT, minimum=minimum, streamed=True)
    switch = Contract.SWITCH if thinking.can_stop else Contract.ALWAYS_ON
    return structs.replace(thinking, contract=switch, minimum=0, streamed=False)


# Terms of a target: the catalog's, with what the operator's contract adds.


def terms(source: YamlFile, loc: Loc, row: TermsRow, provider: Provider) -> Terms:
    """Returns the terms; `loc`: place of the row. Reports unproven claims, expired evidence, terms of local targets."""
    given = row.model_dump(exclude_none=True)
    until = provider.terms.expires_ms
    if row.expires:
        until = int(datetime.fromisoformat(given.pop("expires")).replace(tzinfo=UTC).timestamp() * 1000)
    if given.get("verify", "").startswith("header:"):  # headers of answers are looked up in lower case
        given["verify"] = given["verify"].lower()
    promised = structs.replace(provider.terms, **given, expires_ms=until)
    if provider.local and row.model_fields_set:
        problem = f"{provider.id} is local: there is no provider that could promise anything"
        source.report(source.key(loc), problem, "remove terms")
        return promised
    for key in _stronger(promised, provider.terms) if row.evidence is None else ():
        problem = f"{key} is more than {provider.id} promises everybody, and nothing vouches for it"
        source.report(source.key((*loc, key)), problem, f'remove {key}, or add evidence: "the contract that says so"')
    if row.expires and until is not None and until <= now_ms():
        problem = f"the evidence expired on {row.expires}: the target would serve no request"
        source.report((*loc, "expires"), problem, "renew it, or remove what it vouches for", passed=True)
    return promised


def _stronger(own: Terms, general: Terms) -> list[str]:
    """Returns the keys in which `own` promises more than `general`."""
    days, general_days = own.retention_days, general.retention_days
    stronger = {
        "training": own.training is False and general.training is not False,
        "retention_days": days is not None and (general_days is None or days < general_days),
        "baa": own.baa and not general.baa,
    }
    return [key for key, more in stronger.items() if more]


# Specialists: their tasks and languages, and the template by which a model without chat is asked.

_JINJA = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
"""Same settings as in adapters/completing.py, which renders the prompts that are sent."""
_SAMPLE = 100
"""Length in characters of the text with which a template is tried."""
_NO_LANGUAGES = ("", "")
_KEPT = frozenset({Capability.COMPLETIONS, Capability.EMBEDDINGS})


def check_special(source: YamlFile, loc: Loc, row: TargetRow, model: Model) -> None:
    for place, code in enumerate(row.languages):
        if code not in KNOWN:
            remedy = f"use some of {', '.join(sorted(KNOWN))}"
            source.report((*loc, "languages", place), f"no text can be told to be in '{code}'", remedy)
    if set(row.tasks) == {Task.EMBEDDING} and Capability.EMBEDDINGS not in model.capabilities:
        source.report((*loc, "tasks"), f"{model.id} has no embeddings", "name another task or model")
    if row.pass_rate is not None and not row.tasks:
        problem = "a pass rate is stated of what a specialist is for"
        source.report(source.key((*loc, "pass_rate")), problem, "add tasks, or remove it: outcomes tell")


def prompted(
    source: YamlFile, loc: Loc, row: PromptRow, languages: Sequence[str], model: Model, provider: Provider
) -> tuple[Model, Provider, Prompt]:
    """Returns model, provider and prompt; through a template the model has chat, but no other chat capability."""
    place = source.key((*loc, "prompt"))
    if Capability.COMPLETIONS not in model.capabilities:
        problem = f"{model.id} is not known to complete texts, which a prompt is for"
        source.report(place, problem, "remove prompt, or write the model out with the capability completions")
    if provider.wire is not Wire.OPENAI_COMPATIBLE:
        source.report(place, f"{provider.id} has no completions to ask by a prompt", "remove prompt")
    chats = structs.replace(model, capabilities=model.capabilities & _KEPT | {Capability.CHAT}, thinking=Thinking())
    plain = structs.replace(provider, quirks=structs.replace(provider.quirks, responses=False))
    return chats, plain, _prompt(source, (*loc, "prompt", "template"), row, languages)


def _prompt(source: YamlFile, loc: Loc, row: PromptRow, languages: Sequence[str]) -> Prompt:
    """Returns the prompt, with its sizes if the template is valid."""
    bare = Prompt(template=row.template, stop=row.stop)
    node = source.node(loc)
    try:
        tree = _JINJA.parse(row.template)
        template = _JINJA.from_string(row.template)
    except TemplateSyntaxError as error:
        problem = f"the template is wrong: {str(error.message).rstrip('.')}"
        _report(source, node, error.lineno, problem, "see Jinja's documentation")
        return bare
    unknown = _unknown(tree)
    for name, line in unknown:
        _report(source, node, line, f"a template knows no '{name}'", did_you_mean(name, PROMPT_VARIABLES))
    if unknown:
        return bare
    try:
        return _sized(bare, template, _pairs(row.template, languages))
    except _TemplateFails as error:
        _report(source, node, error.line, str(error), error.remedy)
        return bare


class _TemplateFails(Exception):
    """A template can't be rendered. `line` counts from 1 within it."""

    def __init__(self, pair: tuple[str, str], error: Exception) -> None:
        source, target = map(english_name, pair)
        where = f" from {source or 'an unknown language'} to {target or 'none'}" if pair != _NO_LANGUAGES else ""
        super().__init__(f"the template fails{where or ' where no language is known'}: {error}")
        self.line = _line(error)
        self.remedy = "give a default, as in {{ target or 'French' }}" + (", or list languages" if where else "")


def _unknown(tree: nodes.Template) -> list[tuple[str, int]]:
    """Returns unknown variables, each with the line of its first use."""
    names = meta.find_undeclared_variables(tree) - set(PROMPT_VARIABLES) - set(_JINJA.globals)
    lines: dict[str, int] = {}
    for node in tree.find_all(nodes.Name):
        if node.name in names:
            lines.setdefault(node.name, node.lineno)
    return sorted(lines.items(), key=lambda item: item[1])


def _pairs(template: str, languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields pairs (source, target) of languages to try: each language once on either side; also none known."""
    yield _NO_LANGUAGES
    if "source" not in template and "target" not in template:
        return
    codes = [code for code in languages or sorted(NAMES) if code in NAMES]
    base = "en" if "en" in codes or not codes else codes[0]
    for code in codes:
        yield from ((code, base), (base, code), ("", code), (code, ""))


def _sized(prompt: Prompt, template: Any, pairs: Iterator[tuple[str, str]]) -> Prompt:
    """Returns the prompt with the maximum sizes over all pairs. Raises `_TemplateFails`."""
    size = dense = 0
    times = 0.0
    for pair in pairs:
        own, filled = _rendered(template, pair, "").encode(), _rendered(template, pair, "a" * _SAMPLE).encode()
        size, times = max(size, len(own)), max(times, (len(filled) - len(own)) / _SAMPLE)
        dense = max(dense, sum(not 97 <= byte <= 122 and byte != 32 for byte in own))
    return structs.replace(prompt, bytes=size, dense=dense, times=times)


def _rendered(template: Any, pair: tuple[str, str], text: str) -> str:
    source, target = pair
    variables = {
        "messages": [{"role": "user", "content": text}],
        "system": "",
        "input": text,
        "text": text,
        "source": english_name(source),
        "target": english_name(target),
        "source_code": source,
        "target_code": target,
    }
    try:
        return str(template.render(variables))
    except Exception as error:
        # A template may raise any exception; all of them are reported.
        raise _TemplateFails(pair, error) from error


def _line(error: Exception) -> int:
    """Returns the line of the template that raised; Jinja names the template's frames `<template>`."""
    frames, line = error.__traceback__, 1
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == "<template>":
            line = frames.tb_lineno
        frames = frames.tb_next
    return line


def _report(source: YamlFile, node: yaml.Node | None, line: int, problem: str, remedy: str) -> None:
    """Reports a problem; `line` counts from 1 in the template. A block scalar's text begins on the next line."""
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        source.report_at(node.start_mark.line + line, 0, problem, remedy)
    else:
        source.report(node, problem, remedy)


# One row of `targets` and the catalog → a Target.

_SERVABLE = frozenset({Capability.CHAT, Capability.COMPLETIONS, Capability.EMBEDDINGS})


class TargetBuilder:
    """Builds targets. `engines`: those that targets may name; `price_version`: version of the policy's own prices.

    `worst`: price of models without one; None refuses them.
    """

    def __init__(
        self,
        source: YamlFile,
        catalog: Catalog,
        engines: Mapping[str, ServedEngine],
        *,
        worst: Price | None,
        price_version: str,
    ) -> None:
        self._source, self._catalog, self._engines = source, catalog, engines
        self._report = source.report
        self._worst, self._version = worst, price_version
        self._called: dict[str, str] = {}

    def build(self, name: str, row: TargetRow) -> Target | None:
        """Returns the target; None if its model or provider is unknown, as nothing else can be checked then."""
        loc: Loc = ("targets", name)
        known = self._inline(loc, row.model) if isinstance(row.model, ModelRow) else self._card(loc, row.model)
        if known is None:
            return None
        model, provider = known
        engine = None if row.engine is None else self._engine(loc, row, row.engine, provider)
        if row.adapter is not None and row.engine is None:
            problem = "an adapter is served by an engine, and there is none"
            self._report((*loc, "adapter"), problem, "add engine, or write the model out under the adapter's name")
        if engine is not None:
            model = self._as_served(loc, row, model, engine)
            model = structs.replace(model, thinking=as_served(model.thinking, engine))
        if provider.quirks.asked_only and "none" in model.thinking.levels:
            model = structs.replace(model, thinking=structs.replace(model.thinking, unasked="none"))
        check_special(self._source, loc, row, model)
        prompting, prompt = provider, None
        if row.prompt is not None:
            model, prompting, prompt = prompted(self._source, loc, row.prompt, row.languages, model, provider)
        self._check_effort(loc, row.effort, model)
        if model.price is None and not (engine and engine.mistakes):
            problem = f"{model.id} has no price and the policy refuses unpriced models"
            remedy = "add price: {input: …, output: …} (USD per million tokens), or set unpriced to the rates to charge"
            self._report_absence((*loc, "model", "price"), problem, remedy)
        limits: dict[str, int] = row.timeouts.model_dump(exclude_none=True)
        hourly = engine.hourly or None if engine else None
        if row.hourly_usd is not None:  # the policy wins over the engine's spec
            hourly = nano_from_usd(row.hourly_usd)
        return Target(
            id=name,
            model=model,
            provider=prompting,
            base_url=self._address(loc, row, provider) if row.engine is None else engine.urls[0] if engine else "",
            api_key=self._key(loc, row.api_key, provider),
            effort=row.effort,
            headers=dict(row.headers),
            region=row.region,
            terms=terms(self._source, (*loc, "terms"), row.terms, provider),
            timeouts=Timeouts(**{name.removesuffix("_ms"): limit for name, limit in limits.items()}),
            retries=row.retries,
            max_event_bytes=row.max_event_bytes,
            rejects=row.strict == "reject",
            hourly=hourly,
            engine=engine,
            max_wait_ms=row.max_wait_ms,
            tasks=frozenset(row.tasks),
            languages=frozenset(row.languages),
            pass_rate=row.pass_rate,
            prompt=prompt,
            abandoned=row.abandoned,
        )

    def _report_absence(self, loc: Loc, problem: str, remedy: str) -> None:
        """Reports a missing key, unless it was dropped because of a mistake."""
        if loc not in self._source.dropped:
            self._report(loc, problem, remedy)

    def _card(self, loc: Loc, identifier: str) -> tuple[Model, Provider] | None:
        card = self._catalog.models.get(identifier)
        if card is None:
            word = self._source.text((*loc, "model"))
            problem = f"the catalog has no model '{word}'"
            remedy = did_you_mean(word, self._catalog.models)
            self._report((*loc, "model"), problem, f"{remedy} Or write it out: {{name: …, provider: …, …}}")
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
            thinking=Thinking(**row.thinking.model_dump()) if row.thinking else Thinking(),
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
        if not _SERVABLE & set(row.capabilities):
            problem = "a model without chat, completions or embeddings serves nothing"
            self._report((*loc, "capabilities"), problem, "add chat to its capabilities")
        thinking = row.thinking
        if thinking and len(thinking.levels) != len(thinking.tokens):
            problem = f"{len(thinking.levels)} levels but {len(thinking.tokens)} tokens"
            self._report((*loc, "thinking"), problem, "give each level its typical tokens")
        if thinking and (thinking.contract is Contract.NONE) == bool(thinking.levels):
            problem = f"contract {thinking.contract} and {len(thinking.levels)} levels contradict each other"
            self._report((*loc, "thinking"), problem, "list levels for a model that thinks, none for one that doesn't")

    def _check_effort(self, loc: Loc, effort: str | None, model: Model) -> None:
        if effort is None or effort in model.thinking.levels:
            return
        word = self._source.text((*loc, "effort"))
        if model.thinking.levels:
            problem = f"{model.id} has no effort '{word}'"
            self._report((*loc, "effort"), problem, f"use one of {', '.join(model.thinking.levels)}")
        else:
            self._report((*loc, "effort"), f"{model.id} has no thinking to set", "remove effort")

    def _address(self, loc: Loc, row: TargetRow, provider: Provider) -> str:
        url = row.base_url or provider.base_url
        # A provider's terms, and that a model is local, would not hold at another provider's address. A host belongs to
        # a provider if it is its host or a subdomain; `{…}` in a catalog host stands for any subdomain.
        host = f".{(urlsplit(url).hostname or '').rstrip('.')}"
        others = [owner for owner in self._catalog.providers.values() if not owner.local]
        own = [(owner, (urlsplit(owner.base_url).hostname or "").rpartition("}.")[2]) for owner in others]
        owners = [owner for owner, name in own if name and host.endswith(f".{name}")]
        if owners and provider not in owners:
            problem = (
                f"this address is of {owners[0].id}, not of {provider.id}, whose terms would be taken to hold there"
            )
            self._report((*loc, "base_url"), problem, f"set provider: {owners[0].id}, or another base_url")
        if "{" in url:
            problem = f"the address of {provider.id} has a blank to fill in"
            self._report_absence((*loc, "base_url"), problem, f"set base_url: {provider.base_url} with your own values")
        return url.rstrip("/")

    def _engine(self, loc: Loc, row: TargetRow, name: str, provider: Provider) -> ServedEngine | None:
        word = self._source.text((*loc, "engine"))
        if row.base_url:
            problem = "engine and base_url exclude each other"
            remedy = "keep engine to have it launched, or base_url to reach a running one"
            self._report((*loc, "base_url"), problem, remedy)
        elif not provider.local:
            problem = f"an engine can't serve a model of {provider.id}"
            self._report((*loc, "engine"), problem, "remove engine, or name a local model")
        elif name not in self._engines:
            self._report((*loc, "engine"), f"unknown engine '{word}'", did_you_mean(word, self._engines))
        engine = self._engines.get(name)
        for problem, remedy in engine.mistakes if engine else ():
            self._report((*loc, "engine"), problem, remedy)
        if engine and (other := self._called.setdefault(engine.name, name)) != name:
            problem = f"the engine '{engine.name}' has two specs, {other} and {name}"
            self._report((*loc, "engine"), problem, "give one of them another name")
        return engine

    def _as_served(self, loc: Loc, row: TargetRow, model: Model, engine: ServedEngine) -> Model:
        """Returns the model under the engine's name for it, or the adapter's, and at the engine's planned price unless
        it has a stated one."""
        if engine.planned and (model.price is None or model.price.assumed or model.price.version.startswith("planned")):
            model = structs.replace(model, price=engine.planned)
        if row.adapter is None:
            return structs.replace(model, name=engine.model) if engine.model else model
        if row.adapter not in engine.adapters:
            word = self._source.text((*loc, "adapter"))
            problem, names = f"{engine.name} has no adapter '{word}'", sorted(engine.adapters)
            remedy = did_you_mean(word, names) if names else "list it among the adapters of its spec, if it is a vLLM"
            self._report((*loc, "adapter"), problem, remedy)
        return structs.replace(model, name=row.adapter)

    def _key(self, loc: Loc, key: SecretStr | None, provider: Provider) -> Secret | None:
        value = key.get_secret_value() if key else ""
        if not value and provider.key_env:
            problem = f"{provider.id} needs an API key"
            remedy = f'add api_key: "${{{provider.key_env}}}" and export {provider.key_env}'
            self._report_absence((*loc, "api_key"), problem, remedy)
        if any(not "!" <= character <= "~" for character in value):
            problem = "the key has a blank, a line break or a character that no key has"
            self._report((*loc, "api_key"), problem, "set it without them")
        elif value and "${" not in (text := self._source.text((*loc, "api_key"))):
            remedy = f'export {provider.key_env or "API_KEY"}, and write "${{{provider.key_env or "API_KEY"}}}"'
            if text.startswith("$"):
                self._report((*loc, "api_key"), f"'{text}' is no reference", remedy)
            elif len(text) >= MIN_REPORTED_KEY:
                self._report((*loc, "api_key"), "the key itself stands in the file", remedy)
        return Secret(value) if value else None
