"""LoRA adapters: targets of their own, that come and go while the engine runs."""

import json

import openai

from tests.conformance.client import told
from tests.gateway.running import until
from tests.vllm.running import House, ask
from tests.vllm.test_answers import asked


def test_each_is_listed_beside_its_parent(house: House) -> None:
    status, body = ask(f"{house.url('plain')}/v1/models")
    parents = {model["id"]: model["parent"] for model in json.loads(body)["data"]}
    assert (status, parents) == (200, {"smollm2": None, "tuned": "smollm2", "other": "smollm2"})


def test_one_that_is_unloaded_is_stood_in_for_until_it_is_back(house: House, client: openai.OpenAI) -> None:
    def serves() -> str:
        return told(client, asked("lora", False, max_tokens=2)).headers["x-lowpass-model"]

    assert serves() == "tuned"
    spec = json.loads((house.gateway.home / "plain.yaml").read_text())
    path = next(one["path"] for one in spec["adapters"] if one["name"] == "tuned")
    try:
        assert ask(f"{house.url('plain')}/v1/unload_lora_adapter", {"lora_name": "tuned"})[0] == 200
        assert serves() == "other"
        failed = house.last("lora")["attempts"][0]
        assert (failed["target"], failed["outcome"], failed["upstream_status"]) == ("tuned", "model_missing", 404)
    finally:
        loaded = {"lora_name": "tuned", "lora_path": path}
        assert ask(f"{house.url('plain')}/v1/load_lora_adapter", loaded)[0] == 200
    until(lambda: serves() == "tuned", 40)
