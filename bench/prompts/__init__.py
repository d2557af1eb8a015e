"""The demo's prompts: what an application asks of a gateway, with the official client and nothing else.

Each returns what was said, and raises `Wrong` where the answer is not what the API promises. How clever the answers
are is the model's affair.
"""

from bench.prompts import chat, endpoints, structured
from bench.prompts.asking import Prompt, Said, Wrong

__all__ = ["PROMPTS", "Prompt", "Said", "Wrong"]

PARAGRAPH = (
    "The aqueduct was built in the second century to bring water from the hills to the growing town. It crosses the"
    " valley on forty arches, each cut from local stone and set without mortar. Floods damaged it twice, and each"
    " time the town repaired it within a year."
)
PERSONAL = "Write to jane.doe@example.com about IBAN DE89 3704 0044 0532 0130 00."
PROMPTS = (
    Prompt("a question", chat.simple("What is the capital of France?")),
    Prompt("a system prompt", chat.system),
    Prompt("streamed", chat.streamed),
    Prompt("streamed, with usage", chat.streamed_with_usage),
    Prompt("several turns", chat.simple("My name is Ada.", "Hello Ada!", "What is my name?")),
    Prompt("two choices (n=2)", chat.two_choices),
    Prompt("a stop sequence", chat.stop),
    Prompt("a seed", chat.simple("Invent a word.", seed=7, temperature=0)),
    Prompt("logprobs", chat.logprobs),
    Prompt("code", chat.simple("What does this print?\n```python\nprint(1 + 1)\n```")),
    Prompt("a translation", chat.simple("Translate to French: Good evening, my friends.")),
    Prompt("a summary", chat.simple(f"Summarise in one sentence: {PARAGRAPH}")),
    Prompt("a long prompt", chat.simple(f"Which century? {PARAGRAPH * 8}")),
    Prompt("JSON schema, parsed", structured.parsed("Which city has the Eiffel Tower?", structured.City)),
    Prompt(
        "JSON schema, extraction", structured.parsed("Sort this ticket: I can't log in since noon!", structured.Ticket)
    ),
    Prompt("JSON mode", structured.json_mode),
    Prompt("tools, if it likes", structured.tools_auto),
    Prompt("tools, required", structured.tools_required),
    Prompt("tools, in parallel", structured.tools_parallel),
    Prompt("one tool, streamed", structured.tools_streamed),
    Prompt("a tool's answer", structured.tool_answered),
    Prompt("responses", endpoints.responses),
    Prompt("responses, streamed", endpoints.responses_streamed),
    Prompt("responses, parsed", endpoints.responses_parsed),
    Prompt("completions", endpoints.completion),
    Prompt("completions, streamed", endpoints.completion_streamed),
    Prompt("an embedding", endpoints.embedding),
    Prompt("three embeddings", endpoints.embeddings),
    Prompt("four at once, async", chat.four_at_once),
    Prompt("pinned to a target", chat.pinned),
    Prompt("tagged, in a session", chat.simple("Hi!", extra_body={"metadata": {"session_id": "demo", "tags": "demo"}})),
    Prompt("a thinking budget", chat.simple("What is 7 × 8?", extra_headers={"x-lowpass-thinking-budget": "64"})),
    Prompt("a wrong model's name", chat.misspelt),
    Prompt("decide only", chat.route),
    Prompt("personal data", chat.simple(PERSONAL)),
)
