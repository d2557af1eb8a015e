"""vLLM's own options, as its parser listed them; and a command, read by them."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct


class Option(Struct, frozen=True):
    takes: str
    """none, one, some, maybe."""
    choices: tuple[str, ...] = ()


def _read() -> dict[str, Option]:
    lines = Path(__file__).with_name("vllm_options.txt").read_text().splitlines()[1:]
    words = (line.split(" ") for line in lines)
    return {name: Option(takes, tuple(rest[0].split(",")) if rest else ()) for name, takes, *rest in words}


OPTIONS = _read()


def parsed(command: Sequence[str]) -> dict[str, list[str]]:
    """`vllm serve MODEL …` → values by option, as vLLM would read them; the model under "". Fails where it would."""
    program, verb, model, *words = command
    assert (program, verb) == ("vllm", "serve")
    assert not model.startswith("-")
    found: dict[str, list[str]] = {"": [model]}
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            assert name in OPTIONS, f"vLLM has no option {name}"
            assert name not in found, f"{name} is given twice"
            found[name] = [value] if equals else []
        else:
            found[name].append(word)
    for name, values in found.items():
        _check(name, values)
    return found


def _check(name: str, values: list[str]) -> None:
    option = OPTIONS.get(name, Option("one"))
    counts = {"none": (0, 0), "one": (1, 1), "some": (1, 99), "maybe": (0, 1)}[option.takes]
    assert counts[0] <= len(values) <= counts[1], f"{name} takes {option.takes}, not {values}"
    assert not option.choices or set(values) <= set(option.choices), f"{name} can't be {values}"
