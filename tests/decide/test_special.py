"""Specialists serve what they are for: as stated, as their route says, or as it clearly looks."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import structs

from router.api.text import Metadata, limits
from router.classify.difficulty import read_difficulty
from router.decide.eligibility import ANYTHING, SpecialistRequest, asked, special
from router.decide.profile import NEW, request_of, shape_of
from router.errors import ClientError
from router.types.decision import NO_STAKES
from router.types.request import UNKNOWN, Classification, Endpoint, Languages, Limits, Passage, Request
from router.types.target import Capability, Target, Task
from tests.decide.values import request, target
from tests.tables import data, each_row

Wanted = tuple[Task | None, str]
_TEXTS: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("specialist_texts.yaml").read_text("utf-8"))
_OTHERS = _TEXTS.pop("none")
TEXTS: tuple[tuple[Wanted, ...], ...] = (
    tuple((Task(task), text) for task, texts in _TEXTS.items() for text in texts),
    tuple((None, text) for text in _OTHERS),
)
"""What a specialist is for, with its task, and what none is for."""
SPECIAL = frozenset({Task.TRANSLATION, Task.EXTRACTION, Task.SUMMARY, Task.CLASSIFICATION})
PLAIN = target("plain")


def specialist(*tasks: Task, languages: tuple[str, ...] = ()) -> Target:
    return structs.replace(target("special"), tasks=frozenset(tasks), languages=frozenset(languages))


def classified(of: Request) -> Classification:
    seen = read_difficulty(of)
    return Classification(data_class="internal", difficulty=seen.difficulty, task=seen.task, reading=seen.reading)


def sure(row: Wanted) -> bool:
    """A specialist beside another target would be asked: the right one, or any for what none is for."""
    wanted, text = row
    return not special(specialist(*([wanted] if wanted else SPECIAL)), about(text, None, specialist(*SPECIAL), PLAIN))


def about(text: str = "Good morning.", stated: Task | None = None, *targets: Target) -> SpecialistRequest:
    of = request(text=text, limits=Limits(task=stated))
    return asked(of, classified(of), targets or (specialist(Task.TRANSLATION), PLAIN), UNKNOWN)


def test_a_guess_sends_to_a_specialist_only_where_it_is_clear_and_any_other_target_is_for_anything() -> None:
    right, others = TEXTS
    assert sum(map(sure, right)) >= 20
    assert sum(map(sure, others)) <= 1
    assert [special(PLAIN, each) for each in (ANYTHING, about(), about(stated=Task.GUARD))] == [""] * 3


@each_row(
    "stated, tasks, detail",
    [
        (Task.TRANSLATION, (Task.TRANSLATION,), ""),
        (Task.GUARD, (Task.GUARD,), ""),
        (Task.CHAT, (Task.CHAT, Task.CREATIVE), ""),
        (Task.SUMMARY, (Task.TRANSLATION, Task.EXTRACTION), "is for extraction, translation, and this is summary"),
        (None, (Task.TRANSLATION,), "is for translation, and this looks like chat"),
        (None, (Task.CHAT,), ""),
    ],
)
def test_what_is_stated_goes_before_its_looks(stated: Task | None, tasks: tuple[Task, ...], detail: str) -> None:
    assert special(specialist(*tasks), about("Hello, how are you?", stated)) == detail


def test_a_route_of_specialists_tools_and_embeddings_say_by_their_form_what_is_wanted() -> None:
    both, one = specialist(Task.SUMMARY, Task.TRANSLATION), specialist(Task.TRANSLATION)
    assert special(one, about("Hm.", None, one)) == special(both, about("Hm.", None, both, one)) == ""
    assert special(one, about("Hm.", None, one, specialist(Task.SUMMARY))) != ""
    assert special(one, about("Hm.", None, one, PLAIN)) != ""
    assert special(one, about("Hm.", Task.CODE, one)) == "is for translation, and this is code"
    words = Passage(("messages", 0, "content"), "kitchen lights off", "user")
    tools = tuple(Passage(("tools", at, "function", "name"), name) for at, name in enumerate(("lights", "heating")))
    offered = request(passages=(words, *tools), needs=frozenset({Capability.CHAT, Capability.TOOLS}))
    for of, task in ((offered, Task.TOOL_USE), (request(endpoint=Endpoint.EMBEDDINGS), Task.EMBEDDING)):
        wanted = asked(of, classified(of), (specialist(task), PLAIN), UNKNOWN)
        assert special(specialist(task), wanted) == ""
        assert special(specialist(Task.TRANSLATION), wanted) != ""


ENGLISH_FRENCH = specialist(Task.TRANSLATION, Task.SUMMARY, languages=("en", "fr"))


@each_row("source, into, alone, detail", data(__file__, "languages.yaml"))
def test_languages(source: str, into: str, alone: bool, detail: str) -> None:
    def answer(task: Task) -> str:
        of, targets = request(text="…", limits=Limits(task=task)), [ENGLISH_FRENCH, PLAIN][: 1 if alone else 2]
        return special(ENGLISH_FRENCH, asked(of, classified(of), targets, Languages(source, into)))

    assert answer(Task.TRANSLATION) == (detail and f"is for texts in en, fr, and {detail}")
    assert source != "en" or answer(Task.SUMMARY) == "", "only a translation is put into a language"


def test_what_is_stated_is_what_estimates_are_about_and_decided_again_without_its_text_it_is_as_special() -> None:
    tasks = (Task.TRANSLATION, Task.GUARD)
    stated, guard = (classified(request(text="Good morning.", limits=Limits(task=task))) for task in tasks)
    assert stated.task is classified(request(text="Translate to French: Good morning.")).task is Task.TRANSLATION
    assert stated.reading is not None
    assert stated.reading.share(Task.TRANSLATION) == 1
    assert (guard.task, guard.reading is None) == (Task.GUARD, False)
    of = request(text="Übersetze: …", limits=Limits(task=Task.TRANSLATION))
    plain: dict[str, Any] = {"fixed": False, "redacted": None, "regions": set(), "budgets": set()}
    for languages in (None, Languages("de", "en", "German", "English", "…")):
        shape = shape_of(of, NO_STAKES, NEW, **plain, languages=languages, at_ms=0)
        kept = msgspec.json.decode(msgspec.json.encode(shape), type=type(shape))
        again = request_of(kept, id="r", endpoint="chat", model="auto", stream=False, session="", tags=())
        assert again.limits.task is Task.TRANSLATION
        assert again.languages is not None
        assert (again.languages.source, again.languages.text) == (languages.source if languages else "", "")


def test_the_header_goes_before_its_twin_in_the_metadata() -> None:
    summary = Metadata(lowpass_task="summary")
    assert (limits([], Metadata(tags="a")).task, limits([], summary).task) == (None, Task.SUMMARY)
    assert limits([(b"x-lowpass-task", b"code")], summary).task is Task.CODE
    with pytest.raises(ClientError, match=r"metadata.lowpass_task: .* Known: chat, code, .*, guard\."):
        limits([], Metadata(lowpass_task="poetry"))
