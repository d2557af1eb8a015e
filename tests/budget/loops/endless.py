"""Traffic that must be stopped, beside the table's. Each goes on until stopped, at most as long as the real one did."""

from functools import partial

from tests.budget.loops.messages import MINUTE, Message, assistant, exchange, system, user
from tests.budget.loops.world import SEQUENCES, Case, World, sequences

MESSAGES = 520
"""In nine days at one in 25 minutes, and 60,000 tokens with what is repeated of them."""
APART = [20 * MINUTE, 30 * MINUTE]
PAIR = ("alice", "bob")


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
    for _ in range(5_000):
        world.ask("agent", messages, answer="no")


GROUPS: dict[int, dict[str, Case]] = {
    MESSAGES: {"unknown_answers_among_others": _unknown_answers_among_others},
    MESSAGES // 4: {
        "agents": _agents,
        "agents_with_a_session_each": partial(_agents, session="s{1}"),
        "agents_with_a_session_a_message": partial(_agents, session="s{0}"),
        "agents_with_a_window": partial(_agents, window=9),
        "agents_without_keys": partial(_agents, keys=("", "")),
    },
    MESSAGES // 6: {
        "known_answers": partial(_agents, known=True),
        "known_answers_with_a_window": partial(_agents, window=1, known=True),
        "of_three": partial(_agents, keys=("alice", "bob", "carol"), window=1, known=True),
    },
    125: {"same_transcript_again": _same_transcript_again},
}
"""By the requests within which they are stopped: of the 520 of nine days a quarter, or a sixth with known answers."""
ENDLESS = {name: (case, most) for most, group in GROUPS.items() for name, case in group.items()}
ENDLESS |= {name: (case, SEQUENCES["loops"][name]["within"]) for name, case in sequences("loops").items()}
