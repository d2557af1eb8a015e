"""Specialists serve what they are for: as stated, as their route says, or as it clearly looks."""

from typing import Any

import msgspec
import pytest
from msgspec import structs

from router.api.limits import limits
from router.api.shape import Metadata
from router.classify.reading import read
from router.decide.eligible import refusal
from router.decide.recall import NEW
from router.decide.shape import request_of, shape_of
from router.decide.special import ANYTHING, Asked, asked, special
from router.errors import ClientError
from router.types.classification import Classification
from router.types.languages import UNKNOWN, Languages
from router.types.request import Endpoint, Limits, Request
from router.types.stakes import NO_STAKES
from router.types.target import Capability, Target
from router.types.task import Task
from tests.decide.values import gate, request, target

RIGHT = (
    (Task.TRANSLATION, "Translate to French: Good morning, my friend."),
    (
        Task.TRANSLATION,
        "Please translate the following text into German:\n\nCustomers are waiting for the new version.",
    ),
    (Task.TRANSLATION, "How do you say 'where is the station' in Spanish?"),
    (Task.TRANSLATION, "Übersetze ins Englische: Der Zug fährt um acht Uhr ab."),
    (Task.TRANSLATION, "Traduis en anglais : Le magasin ferme à six heures."),
    (Task.TRANSLATION, "Translate this email to Italian: Dear Mr Rossi, thank you for your order."),
    (Task.TRANSLATION, "English to Polish: the invoice is overdue"),
    (Task.TRANSLATION, "Could you put this into Dutch for me? 'We will be late tomorrow'"),
    (Task.TRANSLATION, "Traduce al inglés: ¿Dónde está la estación?"),
    (Task.TRANSLATION, "Give me the Swedish translation of 'breakfast is served at seven'"),
    (Task.TRANSLATION, "Translate the sentence to Japanese: I would like a coffee."),
    (Task.TRANSLATION, "What does 'Feierabend' mean in English?"),
    (Task.TRANSLATION, "Render the following paragraph in Portuguese: The board met on Monday to discuss the merger."),
    (Task.TRANSLATION, "Good morning, my friend."),
    (Task.EXTRACTION, "Extract the name and the date: On 3 March Anna Meyer signed the contract."),
    (Task.EXTRACTION, "List all e-mail addresses in the following text: write to a@b.com or c@d.org"),
    (Task.EXTRACTION, "Pull out the invoice number and the total from this: Invoice 4711, total 99 EUR"),
    (Task.EXTRACTION, "Extract all persons and places from the text:\nPaul went to Rome with Maria."),
    (Task.EXTRACTION, "Find the order number in this message: my order 12345 has not arrived"),
    (Task.EXTRACTION, "Get the phone numbers from the text below: call 030 123456"),
    (Task.EXTRACTION, "Which dates are mentioned in the following text? The meeting on 5 May was moved to 7 May."),
    (Task.EXTRACTION, "Extrahiere Name und Datum: Am 3. März unterschrieb Anna Meyer."),
    (Task.SUMMARY, "Summarise the following text in two sentences: The council decided on Monday that …"),
    (Task.SUMMARY, "Give me a short summary of this article: Researchers in Oslo have found …"),
    (Task.SUMMARY, "TL;DR: The meeting was long and many people talked about the budget for next year"),
    (Task.SUMMARY, "Fasse den Text zusammen: Die Bahn hat angekündigt, dass …"),
    (Task.SUMMARY, "Sum up the main points of this report: sales rose by 3 per cent in May"),
    (Task.SUMMARY, "Shorten this to one paragraph: Once upon a time there was a king …"),
    (Task.CLASSIFICATION, "Is this review positive or negative? 'The food was cold.'"),
    (Task.CLASSIFICATION, "Classify the ticket as billing, technical or other: I can't log in."),
    (Task.CLASSIFICATION, "Label the sentiment of the following tweet: what a day!"),
    (Task.CLASSIFICATION, "Which category does this e-mail belong to: spam or not spam? You won a prize"),
    (Task.CLASSIFICATION, "Decide whether the text is a complaint: the parcel came late"),
)
"""What somebody may send to have it done by a specialist."""
OTHERS = (
    "What is the capital of France?",
    "Write a poem about the sea",
    "How many people speak French?",
    "Tell me about the French revolution.",
    "Is my translation correct: 'Bonjour' means hello?",
    "What is a good name for a translation agency?",
    "I want to extract a tooth, is it dangerous?",
    "Hello, how are you?",
    "Fix this Python function: def f(x): return x+",
    "What is 12 times 15?",
    "Write a summary function in JavaScript",
    "Who translated the Bible into German?",
    "Explain machine translation to a child",
    "Why is the sky blue?",
    "Plan a trip to Spain for me",
    "My boss said the classification of goods is wrong, what should I do?",
)
"""What a specialist is not for, although some of it sounds so."""
TEXTS: tuple[tuple[tuple[Task | None, str], ...], ...] = (RIGHT, tuple((None, text) for text in OTHERS))
SPECIAL = frozenset({Task.TRANSLATION, Task.EXTRACTION, Task.SUMMARY, Task.CLASSIFICATION})
PLAIN = target("plain")


def specialist(*tasks: Task, languages: tuple[str, ...] = (), name: str = "special") -> Target:
    return structs.replace(target(name), tasks=frozenset(tasks), languages=frozenset(languages))


def seen(of: Request) -> Classification:
    found = read(of)
    return Classification(data_class="internal", difficulty=found.difficulty, task=found.task, reading=found.reading)


def sure(one: tuple[Task | None, str]) -> bool:
    """A specialist beside another target would be asked: the right one, or for what nobody is for, any."""
    wanted, text = one
    of = request(text=text)
    about = asked(of, seen(of), (specialist(*SPECIAL), PLAIN), UNKNOWN)
    return not special(specialist(*([wanted] if wanted else SPECIAL)), about)


def test_a_guess_sends_to_a_specialist_only_where_it_is_clear() -> None:
    right, others = TEXTS
    assert sum(map(sure, right)) >= 18
    assert sum(map(sure, others)) <= 1


def about(text: str = "Good morning.", stated: Task | None = None, *targets: Target, **fields: Any) -> Asked:
    of = request(text=text, limits=Limits(task=stated), **fields)
    return asked(of, seen(of), targets or (specialist(Task.TRANSLATION), PLAIN), UNKNOWN)


def test_whoever_is_no_specialist_is_for_anything() -> None:
    for one in (ANYTHING, about(), about(stated=Task.GUARD)):
        assert special(PLAIN, one) == ""


@pytest.mark.parametrize(
    ("stated", "tasks", "detail"),
    [
        (Task.TRANSLATION, (Task.TRANSLATION,), ""),
        (Task.GUARD, (Task.GUARD,), ""),
        (Task.CHAT, (Task.CHAT, Task.CREATIVE), ""),
        (Task.SUMMARY, (Task.TRANSLATION, Task.EXTRACTION), "is for extraction, translation, and this is summary"),
        (None, (Task.TRANSLATION,), "is for translation, and this looks like chat"),
        (None, (Task.CHAT,), ""),
    ],
)
def test_what_is_stated_goes_before_what_it_looks_like(
    stated: Task | None, tasks: tuple[Task, ...], detail: str
) -> None:
    assert special(specialist(*tasks), about("Hello, how are you?", stated)) == detail


def test_a_route_of_specialists_says_what_is_wanted() -> None:
    both, one = specialist(Task.SUMMARY, Task.TRANSLATION), specialist(Task.TRANSLATION)
    assert special(one, about("Hm.", None, one)) == ""
    assert special(both, about("Hm.", None, both, one)) == ""
    assert special(one, about("Hm.", None, one, specialist(Task.SUMMARY))) != ""
    assert special(one, about("Hm.", None, one, PLAIN)) != ""
    assert special(one, about("Hm.", Task.CODE, one)) == "is for translation, and this is code"


def test_tools_and_embeddings_are_told_by_their_form() -> None:
    tools = request(text="Hello", needs=frozenset({Capability.CHAT, Capability.TOOLS}))
    vectors = request(endpoint=Endpoint.EMBEDDINGS)
    for of, task in ((tools, Task.TOOL_USE), (vectors, Task.EMBEDDING)):
        found = asked(of, seen(of), (specialist(task), PLAIN), UNKNOWN)
        assert special(specialist(task), found) == ""
        assert special(specialist(Task.TRANSLATION), found) != ""


ENGLISH_FRENCH = specialist(Task.TRANSLATION, Task.SUMMARY, languages=("en", "fr"))


@pytest.mark.parametrize(
    ("task", "source", "into", "alone", "detail"),
    [
        (Task.TRANSLATION, "en", "fr", False, ""),
        (Task.TRANSLATION, "en", "", False, ""),
        (Task.TRANSLATION, "de", "fr", False, "is for texts in en, fr, and this is in de"),
        (Task.TRANSLATION, "en", "ja", False, "is for texts in en, fr, and this is to be put into ja"),
        (Task.SUMMARY, "en", "ja", False, ""),
        (Task.TRANSLATION, "", "fr", False, "is for texts in en, fr, and it is not clear what this is in"),
        (Task.TRANSLATION, "", "fr", True, ""),
        (Task.TRANSLATION, "de", "fr", True, "is for texts in en, fr, and this is in de"),
    ],
)
def test_languages(task: Task, source: str, into: str, alone: bool, detail: str) -> None:
    of = request(text="…", limits=Limits(task=task))
    targets = (ENGLISH_FRENCH,) if alone else (ENGLISH_FRENCH, PLAIN)
    assert special(ENGLISH_FRENCH, asked(of, seen(of), targets, Languages(source, into))) == detail


def test_it_is_a_reason_of_the_hard_filter() -> None:
    dropped = refusal(ENGLISH_FRENCH, structs.replace(gate(), asked=about("Hello, how are you?")))
    assert dropped is not None
    assert (dropped.reason, dropped.detail) == ("specialist", "is for summary, translation, and this looks like chat")


def test_what_is_stated_is_what_estimates_are_about() -> None:
    stated = seen(request(text="Good morning.", limits=Limits(task=Task.TRANSLATION)))
    looked = seen(request(text="Translate to French: Good morning."))
    assert stated.task is looked.task is Task.TRANSLATION
    assert stated.reading is not None
    assert stated.reading.tasks.sum() == 1
    guard = seen(request(text="Good morning.", limits=Limits(task=Task.GUARD)))
    assert guard.task is Task.GUARD
    assert guard.reading is not None


def test_decided_again_without_its_text_it_is_as_special() -> None:
    of = request(text="Übersetze: …", limits=Limits(task=Task.TRANSLATION))
    plain: dict[str, Any] = {"work": 1.0, "fixed": False, "redacted": None, "regions": set(), "budgets": set()}
    for languages in (None, Languages("de", "en", "German", "English", "…")):
        shape = shape_of(of, NO_STAKES, NEW, **plain, languages=languages, at_ms=0)
        kept = msgspec.json.decode(msgspec.json.encode(shape), type=type(shape))
        again = request_of(kept, id="r", endpoint="chat", model="auto", stream=False, session="", tags=())
        assert again.limits.task is Task.TRANSLATION
        assert again.languages is not None
        assert (again.languages.source, again.languages.text) == (languages.source if languages else "", "")


def test_the_header_and_its_twin() -> None:
    assert limits([(b"x-lowpass-task", b"guard")], None).task is Task.GUARD
    assert limits([], Metadata(lowpass_task="summary")).task is Task.SUMMARY
    assert limits([(b"x-lowpass-task", b"code")], Metadata(lowpass_task="summary")).task is Task.CODE
    assert limits([], Metadata(tags="a")).task is None
    with pytest.raises(ClientError, match=r"metadata.lowpass_task: .* Known: chat, code, .*, guard\."):
        limits([], Metadata(lowpass_task="poetry"))
