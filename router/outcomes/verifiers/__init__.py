"""What can say how good an answer is. One file each; a new verifier is a file and a name in the union."""

from typing import Annotated

from pydantic import Field

from router.outcomes.verifiers.empty import Empty
from router.outcomes.verifiers.exact import Exact
from router.outcomes.verifiers.http import Http
from router.outcomes.verifiers.json_schema import JsonSchema
from router.outcomes.verifiers.number import Number
from router.outcomes.verifiers.python import Python
from router.outcomes.verifiers.refusal import Refusal
from router.outcomes.verifiers.regex import Regex
from router.outcomes.verifiers.tool_call import ToolCallValid
from router.outcomes.verifiers.truncated import Truncated

Verifier = Annotated[
    JsonSchema | ToolCallValid | Regex | Number | Exact | Refusal | Empty | Truncated | Http | Python,
    Field(discriminator="kind"),
]

__all__ = [
    "Empty",
    "Exact",
    "Http",
    "JsonSchema",
    "Number",
    "Python",
    "Refusal",
    "Regex",
    "ToolCallValid",
    "Truncated",
    "Verifier",
]
