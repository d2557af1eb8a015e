"""Languages of texts, and what they are to be translated into: by tables of words, on short sentences."""

from router.classify.language import KNOWN, NAMES, WORDS, language, languages
from router.types.request import Endpoint, Passage, Request
from tests.classify.looking import conversation, samples
from tests.decide.values import request
from tests.tables import data, each_row

SENTENCES = samples("languages.txt")


def measured() -> tuple[int, int, int, int, int]:
    """Sentences, languages; read right, not at all, and wrong."""
    guesses = [(code, language(text)) for code, texts in SENTENCES.items() for text in texts]
    right, unclear = sum(code == guess for code, guess in guesses), sum(not guess for _, guess in guesses)
    return len(guesses), len(SENTENCES), right, unclear, len(guesses) - right - unclear


def test_hardly_a_sentence_is_taken_for_another_language() -> None:
    _, codes, right, _, wrong = measured()
    assert (codes == len(KNOWN), right >= 70, wrong <= 1) == (True, True, True)
    names = [name.lower() for listed in NAMES.values() for name in listed.split()]
    assert (set(WORDS) <= KNOWN, len(names)) == (True, len(set(names)))


NEITHER = ["3.14159", "Anna Meyer", "OK", "x = y + 1", "ACME GmbH 2024", "https://example.com/a", "Lorem ipsum dolor"]
PARAGRAPHS = [(" ".join(SENTENCES[code]) * 3, code) for code in ("de", "en", "es", "fr", "it", "nl", "pl", "pt", "sv")]


@each_row("text, code", [*PARAGRAPHS, *((text, "") for text in [*NEITHER, '{"id": 4711}'])])
def test_whole_paragraphs_are_recognised_and_what_is_no_language_is_taken_for_none(text: str, code: str) -> None:
    assert language(text) == code


SYSTEM = ("system", "You translate all that the user says into German.")
BEFORE = (("user", "Translate to French: Where is it?"), ("assistant", "Certainly."))
PROMPT = (Passage(("prompt",), "Wo ist der Bahnhof?"), Passage(("user",), "the one who asks"))
ASKED = [
    *((request(text=text), *row) for text, *row in data(__file__, "samples/translations.yaml")),
    (conversation(SYSTEM, ("user", "She has lost her keys.")), "en", "de", "She has lost her keys."),
    (conversation(*BEFORE, ("user", "Wo ist der Bahnhof?")), "de", "", "Wo ist der Bahnhof?"),
    (request(endpoint=Endpoint.COMPLETIONS, passages=PROMPT), "de", "", "Wo ist der Bahnhof?"),
]


@each_row("asked, source, target, bare", ASKED, ids=[str(row[-1]) for row in ASKED])
def test_what_is_to_be_translated_into_what(asked: Request, source: str, target: str, bare: str) -> None:
    """The system prompt may say it; of messages the last one counts."""
    named = languages(asked)
    assert (named.source, named.target, named.text) == (source, target, bare)
    assert (named.source_name == "English", named.target_name == "German") == (source == "en", target == "de")
    assert (bare or "?") not in repr(named)
