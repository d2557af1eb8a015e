"""Languages of texts, and what they are to be translated into: by tables of words, on short sentences."""

from router.classify.language import language, languages
from router.classify.tongues import KNOWN, NAMES, WORDS
from router.types.request import Endpoint, Passage
from tests.classify.looking import conversation, samples
from tests.decide.values import request
from tests.tables import each_row

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


@each_row("text", [*NEITHER, '{"id": 4711}'])
def test_what_is_no_language_is_taken_for_none(text: str) -> None:
    assert language(text) == ""


@each_row("code", ["de", "en", "es", "fr", "it", "nl", "pl", "pt", "sv"])
def test_whole_paragraphs_are_recognised(code: str) -> None:
    assert language(" ".join(SENTENCES[code]) * 3) == code


def test_what_is_named_is_known_and_what_has_words_has_a_name() -> None:
    assert set(WORDS) <= KNOWN
    names = [name.lower() for listed in NAMES.values() for name in listed.split()]
    assert len(names) == len(set(names))


TRANSLATIONS = [
    ("Translate to French: Good morning, my friend.", "en", "fr", "Good morning, my friend."),
    ("Translate into German:\n\nWhere is the station?", "en", "de", "Where is the station?"),
    ("Please translate the following English text to Polish: Hello there.", "en", "pl", "Hello there."),
    ("Translate from Italian to English: Dov'è la stazione?", "it", "en", "Dov'è la stazione?"),
    ("Übersetze ins Englische: Wo ist der Bahnhof?", "de", "en", "Wo ist der Bahnhof?"),
    ("Traduis en anglais : Le magasin est fermé.", "fr", "en", "Le magasin est fermé."),
    ("Traduce al inglés: ¿Dónde está la estación?", "es", "en", "¿Dónde está la estación?"),
    ('How do you say "Where is my luggage?" in Spanish?', "en", "es", "Where is my luggage?"),
    ("Translate «Où est la gare ?» into Dutch.", "fr", "nl", "Où est la gare ?"),
    ("English to Polish: the invoice is overdue", "en", "pl", "the invoice is overdue"),
    ("Swedish translation: the invoice is overdue", "en", "sv", "the invoice is overdue"),
    ("Where is the station?", "en", "", "Where is the station?"),
    ("Dear all: the station is closed.", "en", "", "Dear all: the station is closed."),
    ("I have a French friend: she is called Anne.", "en", "", "I have a French friend: she is called Anne."),
    ("", "", "", ""),
]


@each_row("text, source, target, bare", TRANSLATIONS)
def test_what_is_to_be_translated_into_what(text: str, source: str, target: str, bare: str) -> None:
    found = languages(request(text=text))
    assert (found.source, found.target, found.text) == (source, target, bare)
    assert (found.source_name == "English") == (source == "en")


def test_the_system_prompt_may_say_it() -> None:
    system = ("system", "You translate all that the user says into German.")
    found = languages(conversation(system, ("user", "She has lost her keys.")))
    assert (found.source, found.target_name, found.text) == ("en", "German", "She has lost her keys.")


def test_the_last_message_counts() -> None:
    before = ("user", "Translate to French: Where is it?"), ("assistant", "Certainly.")
    assert languages(conversation(*before, ("user", "Wo ist der Bahnhof?"))).source == "de"


def test_a_prompt_without_messages_is_read_too() -> None:
    passages = (Passage(("prompt",), "Wo ist der Bahnhof?"), Passage(("user",), "the one who asks"))
    assert languages(request(endpoint=Endpoint.COMPLETIONS, passages=passages)).source == "de"


def test_nothing_of_the_text_is_printed() -> None:
    assert "station" not in repr(languages(request(text="Where is the station?")))
