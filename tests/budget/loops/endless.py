"""Traffic that must be stopped. Each goes on for as long as it is let, at most as long as the real one did."""

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

from tests.budget.loops.world import DAY, MINUTE, SECOND, Message, World, assistant, call, system, user

NINE_DAYS = 9 * DAY
"""About 520 messages at one in 25 minutes, and 60,000 tokens with what is repeated of them."""
PAIR = ("alice", "bob")


def pauses(world: World, least: int = 20 * MINUTE, most: int = 30 * MINUTE) -> Iterator[int]:
    """The number of each message, until nine days are over."""
    end, number = world.now + NINE_DAYS, 0
    while world.now < end:
        world.wait(least, most)
        yield number
        number += 1


def agents(
    world: World, keys: tuple[str, ...] = PAIR, session: str = "", window: int = 10_000, *, known: bool = False
) -> None:
    """Each agent keeps its own transcript, or the last `window` messages of it, and answers the other's last words."""
    memories: list[list[Message]] = [[] for _ in keys]
    text = "Hello! Are you there? I have finished my part of the work."
    for number in pauses(world):
        place = number % len(keys)
        memory = memories[place]
        memory.append(user(text))
        text = world.small_talk()
        prompt = [system(f"You are agent {place}."), *memory[-window:]]
        world.ask(keys[place], prompt, session=session.format(number, place), answer=text if known else None)
        memory.append(assistant(text))


with_answers = partial(agents, known=True)
of_three = partial(agents, keys=("alice", "bob", "carol"), window=1, known=True)


def quoted(world: World) -> None:
    text = world.small_talk()
    for number in pauses(world):
        prompt = f"Message from your colleague: {text}"
        text = world.small_talk()
        world.ask(PAIR[number % 2], prompt, answer=text)


def unknown_answers(world: World) -> None:
    """Neither transcripts nor answers: the same few phrases from two keys by turns."""
    for number in pauses(world):
        world.ask(PAIR[number % 2], world.small_talk(0))


def unknown_answers_among_others(world: World) -> None:
    for number in pauses(world):
        for _ in range(world.random.randint(0, 6)):
            world.ask(world.random.choice(("shop", "batch")), world.prose(20))
        world.ask(PAIR[number % 2], f"{world.small_talk(0)} ({number})", session=f"n{number}")


def word_for_word(world: World) -> None:
    """Two answers that lead to each other, for ever."""
    texts = ("Thank you, I will wait for your next message then.", "Fine, and I will wait for yours in the meantime.")
    for number in pauses(world):
        world.ask(PAIR[number % 2], texts[number % 2], answer=texts[1 - number % 2])


def echo(world: World) -> None:
    """Two agents with one line."""
    for number in range(400):
        world.wait(SECOND)
        world.ask(PAIR[number % 2], "Thank you, I will wait for you.")


def one_request(world: World) -> None:
    for _ in range(300):
        world.wait(SECOND)
        world.ask("agent", "Give me valid JSON.")


def in_chinese(world: World) -> None:
    messages: list[Message] = []
    for _ in pauses(world, 40 * MINUTE, 60 * MINUTE):
        messages.append(user(world.hanzi_small_talk()))
        world.ask("alice", messages)
        messages.append(assistant(world.hanzi_small_talk()))


def same_request_in_a_session(world: World) -> None:
    prompt = [system("Answer in JSON."), user(world.prose(60))]
    for _ in range(5_000):
        world.wait(SECOND)
        world.ask("agent", prompt, session="task")


def counted_retries_in_a_session(world: World) -> None:
    for number in range(5_000):
        world.wait(SECOND)
        text = f"Attempt {number}, {world.now}: that was no valid JSON. Please try again."
        world.ask("agent", text, session="task")


def same_transcript_again(world: World) -> None:
    """An agent that sends its last request again whatever the answer is."""
    messages = [user(world.prose(30))]
    world.ask("agent", messages)
    messages += [assistant(world.prose(60)), user("Give me valid JSON.")]
    for _ in range(5_000):
        world.wait(SECOND)
        world.ask("agent", messages, answer="no")


def stuck_tool(world: World) -> None:
    """One call, one error, but for the clock."""
    messages: list[Message] = [system(world.prose(60)), user(world.prose(40))]
    for number in range(1_000):
        world.wait(10 * SECOND)
        world.ask("agent", messages)
        clock = f"2026-11-21T10:{number // 60 % 60:02}:{number % 60:02}Z"
        error = f"{clock} ERROR connection refused by database on port 5432"
        messages += call("query", '{"sql": "select 1"}', number, error)


def stuck_tool_in_a_window(world: World) -> None:
    messages: list[Message] = []
    for number in range(1_000):
        world.wait(10 * SECOND)
        world.ask("agent", [system("You fix builds."), user("Fix the build."), *messages[-10:]])
        messages += call("make", "{}", number, f"error in line {number % 7} of main: undefined symbol")


def three_calls_in_a_circle(world: World) -> None:
    calls = cycle((("read", '{"path": "a.py"}'), ("edit", '{"path": "a.py", "line": 3}'), ("test", "{}")))
    messages: list[Message] = [user(world.prose(40))]
    for number in range(1_000):
        world.ask("agent", messages, session="task")
        messages += call(*next(calls), number, "1 failed, as before: expected 3 and found 4")


def apologies(world: World) -> None:
    """A simulated user who is never pleased, and a model that apologises."""
    complaints = ("That is not right.", "Still wrong, try again.", "No. Try again please.", "Not right yet.")
    messages: list[Message] = [system("Be polite."), user(world.prose(20))]
    for _ in range(1_000):
        world.ask("simulator", messages)
        complaint = world.random.choice(complaints)
        messages += [assistant("I apologise for the confusion. " + world.small_talk()), user(complaint)]


def sudden_spending(world: World) -> None:
    """A week at a few cents in ten minutes; then an agent at 2 USD a request, every other second."""
    for _ in range(7 * 24 * 6):
        world.wait(10 * MINUTE)
        world.ask("team", world.prose(20), cost=20_000_000)
    world.requests = 0
    for _ in range(1_000):
        world.wait(2 * SECOND)
        world.ask("team", world.prose(20), cost=2_000_000_000)


VARIANTS: list[dict[str, Any]] = [{"session": "s{1}"}, {"session": "s{0}"}, {"window": 9}, {"keys": ("", "")}]
SLOW = [agents, *(partial(agents, **variant) for variant in VARIANTS), unknown_answers, word_for_word, in_chinese]
KNOWN = [with_answers, partial(agents, window=1, known=True), of_three, quoted]
FAST = [same_request_in_a_session, stuck_tool]
FAST += [stuck_tool_in_a_window, three_calls_in_a_circle, apologies, sudden_spending]
MORE: list[tuple[list[Any], int]] = [
    ([same_transcript_again, one_request], 125),
    ([echo], 250),
    ([counted_retries_in_a_session], 5 * 85),
]
GROUPS: list[tuple[list[Any], int]] = [([unknown_answers_among_others], 520), (SLOW, 520 // 4)]
ENDLESS = [(case, most) for group, most in [*GROUPS, (KNOWN, 520 // 6), (FAST, 85), *MORE] for case in group]
"""With the requests within which each is stopped: of the 520 of nine days a quarter, or a sixth with known answers."""
