"""The policy of a gateway that shows the made ledger: its five targets, none of which is ever asked."""

from typing import Any

from bench.reports.made import TARGETS

_NANO_TO_USD_PER_MILLION = 1_000
NAME = "policy.yaml"


def policy(without: str = "") -> dict[str, Any]:
    """JSON is YAML. `without`: a target that it lacks."""
    targets = [target for target in TARGETS if target.id != without]
    strategy = {"kind": "cost_of_pass", "targets": [target.id for target in targets]}
    route = {"strategy": strategy, "failure_cost_usd": 0.05}
    return {
        "version": 1,
        "targets": {
            target.id: {
                "model": {
                    "name": target.model.partition("/")[2],
                    "provider": "vllm",
                    "context": 200_000,
                    "max_output": 64_000,
                    "capabilities": ["chat", "tools", "json_schema"],
                    "price": {
                        "input": target.rate_in / _NANO_TO_USD_PER_MILLION,
                        "output": target.rate_out / _NANO_TO_USD_PER_MILLION,
                    },
                },
                "base_url": "http://127.0.0.1:9/v1",
            }
            for target in targets
        },
        "routes": {name: route for name in ("auto", "agents", "extract")},
    }
