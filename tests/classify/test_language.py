"""Languages of texts, and what they are to be translated into: by tables of words, on short sentences."""

from router.classify.language import KNOWN, NAMES, WORDS, language, languages
from router.types.request import Endpoint, Passage, Request
from tests.classify.looking import conversation, samples
from tests.decide.values import request
from tests.tables import data, each_row

SENTENCES = samples("languages.txt")


def measured() -> tuple[int, int, int, int, int]:
    """Sentences, languages; read right, not at all, and wrong."""
    found = [(code, language(text)) for code, texts in SENTENCES.items() for text in texts]
    right = sum(code == guess for code, guess in found)
    unclear = sum(not guess for _, guess in found)
    return len(found), len(SENTENCES), right, unclear, len(found) - right - unclear


def test_hardly_a_sentence_is_taken_for_another_language() -> None:
    _, codes, right, _, wrong = measured()
    assert codes == len(KNOWN)
    assert right >= 70
    assert wrong <= 1


NEITHER = ["3.14159", "Anna Meyer", "OK", "x = y + 1", "ACME GmbH 2024", "https://example.com/a", "Lorem ipsum dolor"]
PARAGRAPHS = [(" ".join(SENTENCES[code]) * 3, code) for code in ("de", "en", "es", "fr", "it", "nl", "pl", "pt", "sv")]


@each_row("text, code", [*PARAGRAPHS, *((text, "") for text in [*NEITHER, '{"id": 4711}'])])
def test_whole_paragraphs_are_recognised_and_what_is_no_language_is_taken_for_none(text: str, code: str) -> None:
    assert language(text) == code


def test_what_is_named_is_known_and_what_has_words_has_a_name() -> None:
    assert set(WORDS) <= KNOWN
    names = [name.lower() for listed in NAMES.values() for name in listed.split()]
    assert len(names) == len(set(names))


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
    found = languages(asked)
    assert (found.source, found.target, found.text) == (source, target, bare)
    assert (found.source_name == "English", found.target_name == "German") == (source == "en", target == "de")


def test_nothing_of_the_text_is_printed() -> None:
    assert "station" not in repr(languages(request(text="Where is the station?")))
