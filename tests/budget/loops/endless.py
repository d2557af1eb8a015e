"""Traffic that must be stopped. Each goes on for as long as it is let, at most as long as the real one did."""

from functools import partial

from tests.budget.loops.messages import DAY, MINUTE, SECOND, Message, assistant, call, exchange, system, user
from tests.budget.loops.world import Case, World, asks, talk

MESSAGES = 520
"""In nine days at one in 25 minutes, and 60,000 tokens with what is repeated of them."""
APART = (20 * MINUTE, 30 * MINUTE)
PAIR = ("alice", "bob")
TASK = [system("Answer in JSON."), user("List the ten largest cities of the world, with their rivers. " * 5)]


def _text(_: World, number: int) -> str:
    """Two answers that lead to each other, for ever."""
    return ("Thank you, I will wait for your message then.", "Fine, and I will wait for yours meanwhile.")[number % 2]


def _agents(
    world: World, keys: tuple[str, ...] = PAIR, session: str = "", window: int = 10_000, *, known: bool = False
) -> None:
    """Each agent keeps its own transcript, or the last `window` messages of it, and answers the other's last words."""
    memories: list[list[Message]] = [[] for _ in keys]
    text = "Hello! Are you there? I have finished my part of the work."
    for number in range(MESSAGES):
        world.wait(APART)
        place = number % len(keys)
        memories[place].append(user(text))
        text = world.small_talk()
        prompt = [system(f"You are agent {place}."), *memories[place][-window:]]
        world.ask(keys[place], prompt, session=session.format(number, place), answer=text if known else None)
        memories[place].append(assistant(text))


def _unknown_answers_among_others(world: World) -> None:
    for number in range(MESSAGES):
        world.wait(APART)
        for _ in range(world.random.randint(0, 6)):
            world.ask(world.random.choice(("shop", "batch")), world.prose(20))
        world.ask(PAIR[number % 2], f"{world.small_talk(0)} ({number})", session=f"n{number}")


def _same_transcript_again(world: World) -> None:
    """An agent that sends its last request again whatever the answer is."""
    messages = [user(world.prose(30))]
    world.ask("agent", messages)
    messages += exchange(world.prose(60), "Give me valid JSON.")
    asks(5_000, messages, "agent", every=SECOND, answer="no")(world)


def _query(world: World, number: int) -> list[Message]:
    """One call, one error, but for the clock."""
    error = f"2026-11-21T10:{number // 60 % 60:02}:{number % 60:02}Z ERROR connection refused by database on port 5432"
    return call("query", '{"sql": "select 1"}', number, error)


def _circle(world: World, number: int) -> list[Message]:
    calls = ("read", '{"path": "a.py"}'), ("edit", '{"path": "a.py", "line": 3}'), ("test", "{}")
    return call(*calls[number % 3], number, "1 failed, as before: expected 3 and found 4")


def _apology(world: World, number: int) -> list[Message]:
    """A simulated user who is never pleased, and a model that apologises."""
    complaints = ("That is not right.", "Still wrong, try again.", "No. Try again please.", "Not right yet.")
    return exchange("I apologise for the confusion. " + world.small_talk(), world.random.choice(complaints))


def _sudden_spending(world: World) -> None:
    """A week at a few cents in ten minutes; then an agent at 2 USD a request, every other second."""
    for times, every, nano_usd in ((7 * DAY // (10 * MINUTE), 10 * MINUTE, 20_000_000), (1_000, 2_000, 2_000_000_000)):
        world.requests = 0
        asks(times, lambda world, _: world.prose(20), "team", every=every, cost=nano_usd)(world)


GROUPS: dict[int, dict[str, Case]] = {
    MESSAGES: {"unknown_answers_among_others": _unknown_answers_among_others},
    MESSAGES // 4: {
        "agents": _agents,
        "agents_with_a_session_each": partial(_agents, session="s{1}"),
        "agents_with_a_session_a_message": partial(_agents, session="s{0}"),
        "agents_with_a_window": partial(_agents, window=9),
        "agents_without_keys": partial(_agents, keys=("", "")),
        # Neither transcripts nor answers: the same few phrases from two keys by turns.
        "unknown_answers": asks(MESSAGES, lambda world, _: world.small_talk(0), *PAIR, every=APART),
        "word_for_word": asks(MESSAGES, _text, *PAIR, every=APART, answer=lambda world, n: _text(world, n + 1)),
        "in_chinese": talk(
            MESSAGES // 2,
            "alice",
            [user("你好。")],
            lambda world, _: exchange(world.hanzi_small_talk(), world.hanzi_small_talk()),
            every=(40 * MINUTE, 60 * MINUTE),
        ),
    },
    MESSAGES // 6: {
        "known_answers": partial(_agents, known=True),
        "known_answers_with_a_window": partial(_agents, window=1, known=True),
        "of_three": partial(_agents, keys=("alice", "bob", "carol"), window=1, known=True),
        "quoted": asks(
            MESSAGES,
            lambda world, _: f"Message from your colleague: {world.last}",
            *PAIR,
            every=APART,
            answer=lambda world, _: world.small_talk(),
        ),
    },
    85: {
        "same_request_in_a_session": asks(5_000, TASK, "agent", every=SECOND, session="task"),
        "stuck_tool": talk(1_000, "agent", TASK, _query, every=10 * SECOND),
        "stuck_tool_in_a_window": talk(
            1_000,
            "agent",
            TASK,
            lambda _, n: call("make", "{}", n, f"line {n % 7}: undefined symbol"),
            every=10 * SECOND,
            window=10,
        ),
        "three_calls_in_a_circle": talk(1_000, "agent", TASK, _circle, session="task"),
        "apologies": talk(1_000, "simulator", TASK, _apology),
        "sudden_spending": _sudden_spending,
    },
    125: {
        "same_transcript_again": _same_transcript_again,
        "one_request": asks(300, "Give me valid JSON.", "agent", every=SECOND),
    },
    250: {"echo_of_two_agents": asks(400, "Thank you, I will wait for you.", *PAIR, every=SECOND)},
    5 * 85: {
        "counted_retries_in_a_session": asks(
            5_000,
            lambda world, n: f"{n}, {world.now}: no valid JSON. Try again.",
            "agent",
            every=SECOND,
            session="task",
        )
    },
}
"""By the requests within which they are stopped: of the 520 of nine days a quarter, or a sixth with known answers."""
ENDLESS = {name: (case, most) for most, group in GROUPS.items() for name, case in group.items()}
