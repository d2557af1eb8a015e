"""What makes a target a specialist: what it is for, and the template that a model without chat is asked by."""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from jinja2 import StrictUndefined, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec import structs

from router.classify.tongues import KNOWN, NAMES
from router.config.policy import PromptRow, TargetRow
from router.config.shape import did_you_mean
from router.config.source import Loc, Source
from router.types.target import PROMPT_VARIABLES, Capability, Model, Prompt, Provider, Thinking, Wire
from router.types.task import Task

_JINJA = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
"""As in adapters/completing.py, which renders what is sent."""
_SAMPLE = 100
"""Characters of a text with which a template is tried."""
_NOBODY = ("", "")
_KEPT = frozenset({Capability.COMPLETIONS, Capability.EMBEDDINGS})


def check_special(source: Source, loc: Loc, row: TargetRow, model: Model) -> None:
    for place, code in enumerate(row.languages):
        if code not in KNOWN:
            remedy = f"use some of {', '.join(sorted(KNOWN))}"
            source.report(source.node((*loc, "languages", place)), f"no text can be told to be in '{code}'", remedy)
    if set(row.tasks) == {Task.EMBEDDING} and Capability.EMBEDDINGS not in model.capabilities:
        source.report(source.node((*loc, "tasks")), f"{model.id} has no embeddings", "name another task or model")
    if row.pass_rate is not None and not row.tasks:
        what = "a pass rate is stated of what a specialist is for"
        source.report(source.key((*loc, "pass_rate")), what, "add tasks, or remove it: outcomes tell")


def prompted(
    source: Source, loc: Loc, row: PromptRow, languages: Sequence[str], model: Model, provider: Provider
) -> tuple[Model, Provider, Prompt]:
    """What the target is, asked by a template: it chats, and can do nothing else of what only chats can."""
    place = source.key((*loc, "prompt"))
    if Capability.COMPLETIONS not in model.capabilities:
        what = f"{model.id} is not known to complete texts, which a prompt is for"
        source.report(place, what, "remove prompt, or write the model out with the capability completions")
    if provider.wire is not Wire.OPENAI_COMPATIBLE:
        source.report(place, f"{provider.id} has no completions to ask by a prompt", "remove prompt")
    chats = structs.replace(model, capabilities=model.capabilities & _KEPT | {Capability.CHAT}, thinking=Thinking())
    plain = structs.replace(provider, quirks=structs.replace(provider.quirks, responses=False))
    return chats, plain, _prompt(source, (*loc, "prompt", "template"), row, languages)


def _prompt(source: Source, loc: Loc, row: PromptRow, languages: Sequence[str]) -> Prompt:
    """With its sizes, where it is sound."""
    bare = Prompt(template=row.template, stop=row.stop)
    node = source.node(loc)
    try:
        tree = _JINJA.parse(row.template)
        template = _JINJA.from_string(row.template)
    except TemplateSyntaxError as error:
        _report(
            source,
            node,
            error.lineno,
            f"the template is wrong: {str(error.message).rstrip('.')}",
            "see Jinja's documentation",
        )
        return bare
    unknown = _unknown(tree)
    for name, line in unknown:
        _report(source, node, line, f"a template knows no '{name}'", did_you_mean(name, PROMPT_VARIABLES))
    if unknown:
        return bare
    try:
        return _sized(bare, template, _pairs(row.template, languages))
    except _Fails as error:
        _report(source, node, error.line, str(error), error.remedy)
        return bare


class _Fails(Exception):
    """A template can't be rendered. `line` counts from 1 within it."""

    def __init__(self, pair: tuple[str, str], error: Exception) -> None:
        source, target = map(_name, pair)
        where = f" from {source or 'an unknown language'} to {target or 'none'}" if pair != _NOBODY else ""
        super().__init__(f"the template fails{where or ' where no language is known'}: {error}")
        self.line = _line(error)
        self.remedy = "give a default, as in {{ target or 'French' }}" + (", or list languages" if where else "")


def _unknown(tree: nodes.Template) -> list[tuple[str, int]]:
    """Variables that nobody gives, each with its first line."""
    names = meta.find_undeclared_variables(tree) - set(PROMPT_VARIABLES) - set(_JINJA.globals)
    lines: dict[str, int] = {}
    for node in tree.find_all(nodes.Name):
        if node.name in names:
            lines.setdefault(node.name, node.lineno)
    return sorted(lines.items(), key=lambda item: item[1])


def _pairs(template: str, languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Sources and targets to try it with: each once on either side, and none known."""
    yield _NOBODY
    if "source" not in template and "target" not in template:
        return
    codes = [code for code in languages or sorted(NAMES) if code in NAMES]
    base = "en" if "en" in codes or not codes else codes[0]
    for code in codes:
        yield from ((code, base), (base, code), ("", code), (code, ""))


def _sized(prompt: Prompt, template: Any, pairs: Iterator[tuple[str, str]]) -> Prompt:
    """Raises `_Fails`."""
    size = dense = 0
    times = 0.0
    for pair in pairs:
        own, filled = _rendered(template, pair, "").encode(), _rendered(template, pair, "a" * _SAMPLE).encode()
        size, times = max(size, len(own)), max(times, (len(filled) - len(own)) / _SAMPLE)
        dense = max(dense, sum(not 97 <= byte <= 122 and byte != 32 for byte in own))
    return structs.replace(prompt, bytes=size, dense=dense, times=times)


def _rendered(template: Any, pair: tuple[str, str], text: str) -> str:
    source, target = pair
    told = {
        "messages": [{"role": "user", "content": text}],
        "system": "",
        "input": text,
        "text": text,
        "source": _name(source),
        "target": _name(target),
        "source_code": source,
        "target_code": target,
    }
    try:
        return str(template.render(told))
    except Exception as error:
        # Whatever a template may raise, it has to be told.
        raise _Fails(pair, error) from error


def _name(code: str) -> str:
    return NAMES[code].partition(" ")[0] if code else ""


def _line(error: Exception) -> int:
    """Of the template, whose frames Jinja names `<template>`."""
    frames, line = error.__traceback__, 1
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == "<template>":
            line = frames.tb_lineno
        frames = frames.tb_next
    return line


def _report(source: Source, node: yaml.Node | None, line: int, what: str, remedy: str) -> None:
    """`line` counts from 1 within the template; the text of a block begins in the line after its mark."""
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        source.report_at(node.start_mark.line + line, 0, what, remedy)
    else:
        source.report(node, what, remedy)
