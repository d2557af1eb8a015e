"""Engines for other platforms; vLLM's own options, as its parser listed them; and a command, read by them."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from local_serving.spec import Vllm, known, read

_FOLDER = Path(__file__).parent
_PLAIN = {"name": "plain", "model": "vllm/plain", "path": "acme/plain-8b", "context": 8192, "gpu": "h100-80gb"}
_SPECS = yaml.safe_load((_FOLDER / "specs.yaml").read_text("utf-8"))
_SHIPPED = [spec for spec in map(read, known()) if isinstance(spec, Vllm) and spec.gpu and spec.parallelism.nodes == 1]
ONE_MACHINE, MACHINES = ([Vllm.model_validate(_PLAIN | row) for row in rows] for rows in _SPECS.values())
ONE_MACHINE += _SHIPPED
BY_NAME = {spec.name: spec for spec in (*ONE_MACHINE, *MACHINES)}
TALKATIVE = BY_NAME["talkative_v1.5"]
_LINES = (_FOLDER / "vllm_options.txt").read_text().splitlines()[1:]
OPTIONS = {name: tuple(rest) for name, *rest in (line.split(" ") for line in _LINES)}
"""How many values an option takes (none, one, some, maybe), and which, where they are few."""


def parsed(command: Sequence[str]) -> dict[str, list[str]]:
    """`vllm serve MODEL …` → values by option, as vLLM would read them; the model under "". Fails where it would."""
    program, verb, model, *words = command
    assert (program, verb) == ("vllm", "serve")
    assert not model.startswith("-")
    values: dict[str, list[str]] = {"": [model]}
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            assert name in OPTIONS, f"vLLM has no option {name}"
            assert name not in values, f"{name} is given twice"
            values[name] = [value] if equals else []
        else:
            values[name].append(word)
    for name, given in values.items():
        takes, *choices = OPTIONS.get(name, ("one",))
        least, most = {"none": (0, 0), "one": (1, 1), "some": (1, 99), "maybe": (0, 1)}[takes]
        assert least <= len(given) <= most, f"{name} takes {takes}, not {given}"
        assert not choices or set(given) <= set(choices[0].split(",")), f"{name} can't be {given}"
    return values
