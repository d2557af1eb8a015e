"""Traffic that must be stopped. Each goes on for as long as it is let, at most as long as the real one did."""

from collections.abc import Callable, Iterator
from itertools import cycle

from tests.budget.loops.words import hanzi_small_talk, prose, small_talk
from tests.budget.loops.world import DAY, MINUTE, SECOND, Message, World, assistant, call, result, system, user

NINE_DAYS = 9 * DAY
"""About 520 messages at one in 25 minutes, and 60,000 tokens with what is repeated of them."""


def _pauses(world: World, least: int = 20 * MINUTE, most: int = 30 * MINUTE) -> Iterator[int]:
    """The number of each message, until nine days are over."""
    end, number = world.now + NINE_DAYS, 0
    while world.now < end:
        world.wait(least, most)
        yield number
        number += 1


def _agents(world: World, keys: tuple[str, ...], sessions: Callable[[int], str], window: int, *, known: bool) -> None:
    """Each agent keeps its own transcript, or the last `window` messages of it, and answers the other's last words."""
    memories: dict[int, list[Message]] = {place: [] for place in range(len(keys))}
    said = "Hello! Are you there? I have finished my part of the work."
    for number in _pauses(world):
        place = number % len(keys)
        memory = memories[place]
        memory.append(user(said))
        said = small_talk(world.random)
        prompt = [system(f"You are agent {place}."), *memory[-window:]]
        world.ask(keys[place], prompt, session=sessions(number), answer=said if known else None)
        memory.append(assistant(said))


def nine_days_with_transcripts(world: World) -> None:
    _agents(world, ("alice", "bob"), lambda number: "", 10_000, known=False)


def nine_days_with_answers(world: World) -> None:
    _agents(world, ("alice", "bob"), lambda number: "", 10_000, known=True)


def nine_days_in_a_session_each(world: World) -> None:
    _agents(world, ("alice", "bob"), lambda number: f"s{number % 2}", 10_000, known=False)


def nine_days_in_ever_new_sessions(world: World) -> None:
    _agents(world, ("alice", "bob"), lambda number: f"s{number}", 10_000, known=False)


def nine_days_with_a_window(world: World) -> None:
    _agents(world, ("alice", "bob"), lambda number: "", 9, known=False)


def nine_days_of_one_key(world: World) -> None:
    _agents(world, ("", ""), lambda number: "", 10_000, known=False)


def nine_days_without_memory(world: World) -> None:
    """Each prompt is the other's answer, and nothing else."""
    _agents(world, ("alice", "bob"), lambda number: "", 1, known=True)


def nine_days_of_three(world: World) -> None:
    _agents(world, ("alice", "bob", "carol"), lambda number: "", 1, known=True)


def nine_days_quoted(world: World) -> None:
    said = small_talk(world.random)
    for number in _pauses(world):
        prompt = [user(f"Message from your colleague: {said}")]
        said = small_talk(world.random)
        world.ask(("alice", "bob")[number % 2], prompt, answer=said)


def nine_days_unknown_answers(world: World) -> None:
    """Neither transcripts nor answers: the same few phrases from two keys by turns."""
    for number in _pauses(world):
        world.ask(("alice", "bob")[number % 2], [user(small_talk(world.random, 0))])


def nine_days_unknown_answers_among_others(world: World) -> None:
    for number in _pauses(world):
        for _ in range(world.random.randint(0, 6)):
            world.ask(world.random.choice(("shop", "batch")), [user(prose(world.random, 20))])
        world.ask(
            ("alice", "bob")[number % 2], [user(f"{small_talk(world.random, 0)} ({number})")], session=f"n{number}"
        )


def nine_days_word_for_word(world: World) -> None:
    """Two answers that lead to each other, for ever."""
    said = ("Thank you, I will wait for your next message then.", "Fine, and I will wait for yours in the meantime.")
    for number in _pauses(world):
        world.ask(("alice", "bob")[number % 2], [user(said[number % 2])], answer=said[1 - number % 2])


def nine_days_in_chinese(world: World) -> None:
    messages: list[Message] = []
    for _ in _pauses(world, 40 * MINUTE, 60 * MINUTE):
        messages.append(user(hanzi_small_talk(world.random)))
        world.ask("alice", messages)
        messages.append(assistant(hanzi_small_talk(world.random)))


def same_request_in_a_session(world: World) -> None:
    prompt = [system("Answer in JSON."), user(prose(world.random, 60))]
    for _ in range(5_000):
        world.wait(SECOND)
        world.ask("agent", prompt, session="task")


def counted_retries_in_a_session(world: World) -> None:
    for number in range(5_000):
        world.wait(SECOND)
        world.ask(
            "agent", [user(f"Attempt {number}, {world.now}: that was no valid JSON. Please try again.")], session="task"
        )


def same_transcript_again(world: World) -> None:
    """An agent that sends its last request again whatever the answer is."""
    messages = [user(prose(world.random, 30))]
    world.ask("agent", messages)
    messages += [assistant(prose(world.random, 60)), user("Give me valid JSON.")]
    for _ in range(5_000):
        world.wait(SECOND)
        world.ask("agent", messages, answer="no")


def stuck_tool(world: World) -> None:
    """One call, one error, but for the clock."""
    messages: list[Message] = [system(prose(world.random, 60)), user(prose(world.random, 40))]
    for number in range(1_000):
        world.wait(10 * SECOND)
        world.ask("agent", messages)
        error = (
            f"2026-11-21T10:{number // 60 % 60:02}:{number % 60:02}Z ERROR connection refused by database on port 5432"
        )
        messages += [*call("query", '{"sql": "select 1"}', number), result(error, number)]


def stuck_tool_in_a_window(world: World) -> None:
    messages: list[Message] = []
    for number in range(1_000):
        world.wait(10 * SECOND)
        world.ask("agent", [system("You fix builds."), user("Fix the build."), *messages[-10:]])
        messages += [
            *call("make", "{}", number),
            result(f"error in line {number % 7} of main: undefined symbol", number),
        ]


def three_calls_in_a_circle(world: World) -> None:
    calls = cycle((("read", '{"path": "a.py"}'), ("edit", '{"path": "a.py", "line": 3}'), ("test", "{}")))
    messages: list[Message] = [user(prose(world.random, 40))]
    for number in range(1_000):
        world.ask("agent", messages, session="task")
        messages += [*call(*next(calls), number), result("1 failed, as before: expected 3 and found 4", number)]


def apologies(world: World) -> None:
    """A simulated user who is never pleased, and a model that apologises."""
    messages: list[Message] = [system("Be polite."), user(prose(world.random, 20))]
    for _ in range(1_000):
        world.ask("simulator", messages)
        heard = world.random.choice(
            ("That is not right.", "Still wrong, try again.", "No. Try again please.", "Not right yet.")
        )
        messages += [assistant("I apologise for the confusion. " + small_talk(world.random)), user(heard)]


def sudden_spending(world: World) -> None:
    """A week at a few cents in ten minutes; then an agent at 2 USD a request, every other second."""
    for _ in range(7 * 24 * 6):
        world.wait(10 * MINUTE)
        world.ask("team", [user(prose(world.random, 20))], cost=20_000_000)
    world.requests = world.characters = 0
    for _ in range(1_000):
        world.wait(2 * SECOND)
        world.ask("team", [user(prose(world.random, 20))], cost=2_000_000_000)


ALL: tuple[Callable[[World], None], ...] = tuple(
    value for name, value in list(globals().items()) if getattr(value, "__module__", "") == __name__ and name[0] != "_"
)
