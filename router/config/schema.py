"""The JSON schema for editors: `python -m router.config.schema > policies/schema.json`."""

import json
import sys

from router.config.policy import Policy


def schema_text() -> str:
    """Returns the content of policies/schema.json."""
    return json.dumps(Policy.model_json_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
