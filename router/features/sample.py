"""What is looked at of a long text: its head, its middle and its tail."""

SLICE = 2_048
"""Characters of each. A text of up to three is looked at whole."""


def sample(text: str) -> str:
    """The text itself, or three slices of it, so that the cost of a look has a bound."""
    if len(text) <= 3 * SLICE:
        return text
    middle = (len(text) - SLICE) // 2
    return f"{text[:SLICE]}\n{text[middle : middle + SLICE]}\n{text[-SLICE:]}"
