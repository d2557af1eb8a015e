"""The policy's second opinion: what a local model is asked about uncertain findings, and how its answers are read."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Raw, Struct
from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Detects, DoubtfulValue, Form
from router.types.request import Finding, Passage
from router.types.tables import table

CONTEXT = 80
"""Number of characters shown on each side of a finding."""
_OPEN_MARK, _CLOSE_MARK = "⟦", "⟧"
_TOKENS_PER_ANSWER, _TOKENS_AROUND = 8, 16
"""Tokens of an answer: for each finding (`"12":"yes",`), and for the braces and blanks."""
_PROMPT_PARTS = table("classify/data/second_opinion.yaml")
_answers_decoder = msgspec.json.Decoder(dict[str, Literal["yes", "no"]])
FormWords = Mapping[tuple[str, str], str]
"""(form, class) → description of the form in questions."""


class Opinion(StrEnum):
    YES = "yes"
    NO = "no"
    NONE = "none"


class OpinionQuestion(Struct, frozen=True):
    """The question whether the value of `doubt`, between `before` and `after`, is what its form describes."""

    doubt: DoubtfulValue
    before: str
    after: str

    def __repr__(self) -> str:
        return f"Question({self.doubt.form})"


class SecondOpinion(BaseModel):
    """The second opinion, `{kind: local_llm, target: local}`: a model that judges others' uncertain findings."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["local_llm"]
    target: str = Field(description="A local target of this policy; no other is ever asked.")
    timeout_ms: Annotated[int, Field(gt=0)] = Field(5_000, description="Then it counts as found.")
    most: Annotated[int, Field(gt=0, le=100)] = Field(
        20, description="Asked about in one request; if there are more, none is asked about, and all count as found."
    )

    @property
    def data_class(self) -> str:
        """Empty: it has no class."""
        return ""

    @property
    def forms(self) -> tuple[Form, ...]:
        return ()

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        return own

    def questions(self, possible: Sequence[Finding], passages: Sequence[Passage]) -> tuple[OpinionQuestion, ...]:
        """Returns the questions; none if more than `most`. Classes with an inexact finding are not asked about."""
        inexact_classes = {finding.data_class for finding in possible if not finding.exact}
        questioned = [finding for finding in possible if finding.data_class not in inexact_classes]
        if len(questioned) > self.most:
            return ()
        texts: dict[object, list[str]] = {}
        for passage in passages:
            texts.setdefault(passage.path, []).append(passage.text)
        # An object key and its value have the same path: which of them was found is unknown.
        found_texts = ((finding, texts.get(finding.path, ())) for finding in questioned)
        return tuple(_question(finding, *text) for finding, text in found_texts if len(text) == 1)


def form_words(detectors: Iterable[Detects]) -> FormWords:
    """Returns a description of each form: from its detector, else from second_opinion.yaml, else its name."""
    names_by_form: dict[tuple[str, str], list[str]] = {}
    for detector in detectors:
        for form in detector.forms:
            description = form.words or _PROMPT_PARTS["called"].get(form.name) or f"a {form.name.replace('_', ' ')}"
            names_by_form.setdefault((f"{detector.kind}.{form.name}", detector.data_class), []).append(description)
    return {key: " or ".join(dict.fromkeys(names)) for key, names in names_by_form.items()}


def ask_body(questions: Sequence[OpinionQuestion], descriptions: FormWords) -> dict[str, Raw]:
    """Returns the body of a chat request with numbered questions. Its schema allows only yes and no as answers."""
    text = "\n\n".join(_question_text(number, question, descriptions) for number, question in enumerate(questions, 1))
    messages = [{"role": "system", "content": _PROMPT_PARTS["rules"]}, {"role": "user", "content": text}]
    body = {"messages": messages, "temperature": 0, "response_format": _answer_format(len(questions))}
    return {name: Raw(msgspec.json.encode(value)) for name, value in body.items()}


def most_tokens(questions: Sequence[OpinionQuestion]) -> int:
    """Returns the maximum number of tokens of the answer."""
    return _TOKENS_AROUND + _TOKENS_PER_ANSWER * len(questions)


def verdicts(answer: str, questions: Sequence[OpinionQuestion]) -> tuple[Opinion, ...]:
    """Returns an opinion for each question: all `NONE` unless every question is answered with a plain yes or no."""
    try:
        answers = _answers_decoder.decode(answer)
    except (msgspec.DecodeError, UnicodeEncodeError):
        answers = {}
    numbers = tuple(str(number) for number, _ in enumerate(questions, 1))
    if answers.keys() != set(numbers):
        return (Opinion.NONE,) * len(questions)
    return tuple(Opinion(answers[number]) for number in numbers)


def denied(questions: Sequence[OpinionQuestion], answers: Sequence[Opinion]) -> frozenset[DoubtfulValue]:
    """Returns the values that are denied at every place where they were found."""
    not_denied = {
        question.doubt for question, verdict in zip(questions, answers, strict=True) if verdict is not Opinion.NO
    }
    return frozenset(question.doubt for question in questions) - not_denied


def _question(finding: Finding, text: str) -> OpinionQuestion:
    start, end = finding.start, finding.end
    doubt = DoubtfulValue(finding.detector, finding.data_class, text[start:end])
    return OpinionQuestion(doubt, text[max(0, start - CONTEXT) : start], text[end : end + CONTEXT])


def _question_text(number: int, question: OpinionQuestion, descriptions: FormWords) -> str:
    doubt = question.doubt
    # Delimiters in the text itself must not pass for those around the value.
    texts = question.before, doubt.value, question.after
    before, value, after = [text.replace(_OPEN_MARK, "[").replace(_CLOSE_MARK, "]") for text in texts]
    quoted = f"…{before}{_OPEN_MARK}{value}{_CLOSE_MARK}{after}…".encode("utf-8", "replace").decode()
    text = msgspec.json.encode(quoted).decode()
    return f"{number}. Text: {text}\nIs {_OPEN_MARK}…{_CLOSE_MARK} {descriptions[doubt.form, doubt.data_class]}?"


def _answer_format(count: int) -> dict[str, Any]:
    numbers = [str(number) for number in range(1, count + 1)]
    schema = {
        "type": "object",
        "properties": {number: {"type": "string", "enum": ["yes", "no"]} for number in numbers},
        "required": numbers,
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "opinions", "strict": True, "schema": schema}}
