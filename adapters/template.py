"""The hot path of a stream: an event that equals an earlier, parsed one in all but its text need not be parsed again.

Why this can't go wrong: all bytes around the text are compared, from `data:` to the blank line. Inside a JSON string
every quote is escaped, so bytes without a quote, or with escaped quotes only, are one string. Usage, errors, finish
reasons, other choices and merged events differ outside the text, and are parsed. The text itself passes unchecked.
"""

from adapters.openai_wire import Answer

_PADDINGS = (b'"obfuscation":"', b'"p":"')
"""Random strings by which OpenAI and Mistral hide the text's length; they come after the text."""

_THOUGHTS = (b"reasoning", b"reasoning_content")


class Template:
    """`before` text `after`, or `before` text `after` padding `tail`; as received and as sent on.

    `thinks`: the text is a thought.
    """

    __slots__ = ("_after", "_before", "_sent_after", "_sent_before", "_start", "_tail", "thinks")

    def __init__(self, received: tuple[bytes, bytes, bytes], sent: tuple[bytes, bytes, bytes], thinks: bool) -> None:
        self.thinks = thinks
        self._before, self._after, self._tail = received
        self._sent_before, self._sent_after, _ = sent
        self._start = len(self._before)

    def stamp(self, event: bytes) -> tuple[bytes, bytes] | None:
        """(the text as JSON has it, the event to send) if this is one event of the same form."""
        if not event.startswith(self._before):
            return None
        end = event.find(b'"', self._start)
        if not event.startswith(self._after, end):
            end = event.find(self._after, end)
            if end < 0 or not _one_string(event[self._start : end]):
                return None
        padding = end + len(self._after)
        closing = event.find(b'"', padding) if self._tail else padding
        if event[closing:] != self._tail:
            return None
        text = event[self._start : end]
        return text, self._sent_before + text + self._sent_after + event[padding:]


def _one_string(text: bytes) -> bool:
    """Every quote follows a backslash: a second string would open with one that does not."""
    return text.count(b'"') == text.count(b'\\"')


def learn(received: bytes, sent: bytes, answer: Answer) -> Template | None:
    """A template from one event in both forms, if it carries plain text of one choice and nothing else."""
    found = _text(answer)
    if found is None:
        return None
    key, text = found
    before, after = _cut(received, key, text), _cut(sent, key, text)
    if not before or not after or before[2] != after[2]:
        return None
    return Template(before, after, key in _THOUGHTS)


def _text(answer: Answer) -> tuple[bytes, bytes] | None:
    """Key and bytes of the one text, if it is there, alone, and needs no escapes."""
    if not answer.choices or len(answer.choices) > 1 or answer.report is not None:
        return None
    choice = answer.choices[0]
    said = choice.said
    if said.function_call or said.refusal or said.audio:
        return None
    found: list[tuple[str, object]] = [("text", choice.text), ("content", said.content), ("reasoning", said.reasoning)]
    found.append(("reasoning_content", said.reasoning_content))
    found += [("arguments", call.function.arguments) for call in said.tool_calls or () if call.function]
    match [(key, text) for key, text in found if text]:
        case [(key, str(text))] if '"' not in text and "\\" not in text:
            return key.encode(), text.encode()
    return None


def _cut(event: bytes, key: bytes, text: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The event around its text; None if the text stands there escaped, or in two places."""
    for colon in (b'":"', b'": "'):
        opening = b'"' + key + colon
        parts = event.split(opening + text + b'"')
        if len(parts) == 2:
            after, tail = _padded(b'"' + parts[1])
            return parts[0] + opening, after, tail
    return None


def _padded(after: bytes) -> tuple[bytes, bytes]:
    """What follows the text, up to a padding's value, and what follows that value; no padding: (all, b"")."""
    for padding in _PADDINGS:
        if padding in after:
            head, _, rest = after.partition(padding)
            return head + padding, rest[rest.index(b'"') :]
    return after, b""
