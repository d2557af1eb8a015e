"""Single requests that must pass, however much they are alike: batches, samples, monitors, bursts."""

from collections.abc import Sequence
from functools import partial

from router.types.request import Endpoint
from tests.budget.loops.world import MINUTE, SECOND, World, assistant, cases, system, user

REVIEW = (
    "You are a careful annotator. Read the product review below and decide whether its author was pleased. Answer with"
    " one word, positive or negative, and with nothing else. Do not explain your choice.\n\nReview: {}\n\nSentiment:"
)
HEALTH = "Health check. Reply with the single word OK."


def reviews(world: World, session: str = "") -> None:
    for _ in range(1_500):
        world.ask("batch", REVIEW.format(world.prose(4, 40)), session=session)


def two_keys_in_turn(world: World, frame: str = REVIEW, least: int = 6, most: int = 30) -> None:
    for number in range(1_500):
        world.ask(("one", "two")[number % 2], frame.format(world.prose(least, most)))


def with_examples(world: World, session: str = "") -> None:
    shots = [system("Classify.")]
    for _ in range(12):
        shots += [user(world.prose(15)), assistant(world.random.choice(("positive", "negative")))]
    for _ in range(1_500):
        world.ask("batch", [*shots, user(world.prose(4, 30))], session=session)


def readings(world: World) -> None:
    for _ in range(1_500):
        room, state = world.random.choice(("kitchen", "bath", "hall")), world.random.choice(("ok", "warm", "cold"))
        sensor, value = world.random.randint(1, 40), world.random.random()
        world.ask("sensors", f"Sensor {sensor} in the {room} reads {value:.2f}: {state}.")


def known_answers(world: World) -> None:
    for _ in range(1_500):
        world.ask("batch", REVIEW.format(world.prose(20)), answer=world.prose(12))


def same_prompt_64_times(world: World, session: str = "") -> None:
    for _ in range(20):
        prompt = world.prose(80)
        for _ in range(64):
            world.ask("evaluation", prompt, session=session, answer=world.prose(40))


def same_transcript_64_times(world: World) -> None:
    for _ in range(20):
        prompt = [user(world.prose(30)), assistant(world.prose(60)), user(world.prose(30))]
        world.ask("evaluation", prompt[:1])
        for _ in range(64):
            world.ask("evaluation", prompt, answer=world.prose(40))


def five_hundred_at_once(world: World) -> None:
    for _ in range(6):
        world.together("burst", [HEALTH] * 500, session="s")


def load_test(world: World) -> None:
    """32 connections, one prompt, a session each and a session for all."""
    for _ in range(40):
        world.together("load", [HEALTH] * 32, session="all")
        world.together("load", [HEALTH] * 32)


def refused_again_and_again(world: World) -> None:
    """Its budget is spent: nothing is sent, so nothing runs away."""
    for _ in range(500):
        world.ask("poor", HEALTH, session="s", sent=False, cost=0)


def monitor(world: World, text: str = HEALTH, answer: str | None = "OK") -> None:
    """Every minute for two days."""
    for number in range(2 * 24 * 60):
        world.wait(MINUTE)
        world.ask("monitor", text.format(number, world.now), answer=answer)


def two_monitors(world: World, probes: Sequence[str] = (HEALTH,), answer: str | None = "OK") -> None:
    """Of two regions, strictly by turns."""
    for number in range(24 * 120):
        world.wait(30 * SECOND)
        world.ask(("east", "west")[number % 2], probes[number // 2 % len(probes)], answer=answer)


def numeric_rows(world: World, session: str = "table") -> None:
    """Rows of a CSV file, one a request."""
    for _ in range(1_000):
        row = ",".join(f"{world.random.uniform(0, 1000):.2f}" for _ in range(6))
        world.ask("batch", f"Is this row plausible? {row}", session=session)


def samples_of_few_shots(world: World) -> None:
    """A hundred answers to each of a few prompts with examples, one after another."""
    for _ in range(4):
        prompt = [user(world.prose(20)), assistant(world.prose(5)), user(world.prose(20))]
        for _ in range(100):
            world.wait(2 * SECOND)
            world.ask("evaluation", prompt, answer=world.prose(40))


def embeddings(world: World) -> None:
    for _ in range(1_000):
        world.ask("index", "the same text", session="s", endpoint=Endpoint.EMBEDDINGS)


def images(world: World) -> None:
    """The same words to another image, in one session."""
    for number in range(1_000):
        image = {"type": "image_url", "image_url": {"url": f"data:{number}"}}
        parts = [{"type": "text", "text": "Describe this image."}, image]
        world.ask("vision", [{"role": "user", "content": parts}], session="photos")


def _spends(world: World, times: int, every: int, nano_usd: int) -> None:
    for _ in range(times):
        world.wait(every)
        world.ask("team", world.prose(20), cost=nano_usd)


def dear_batch(world: World) -> None:
    """A key that spends little all week, and then 40 USD in a few minutes."""
    _spends(world, 7 * 24 * 6, 10 * MINUTE, 5_000_000)
    _spends(world, 400, SECOND, 100_000_000)


def every_night(world: World) -> None:
    """60 USD in ten minutes every night, a few cents a day else."""
    for _ in range(21):
        _spends(world, 60, 20 * MINUTE, 20_000_000)
        _spends(world, 60, SECOND, 700_000_000)


FOX = "the quick brown fox jumps over the lazy dog"
THREE_PROBES = ("What is the capital of France?", "Spell the word cat.", "Say yes.")
BATCHES = [
    *cases(__name__),
    partial(reviews, session="reviews-1"),
    partial(two_keys_in_turn, frame="{}", least=3, most=9),
    partial(two_keys_in_turn, frame="Review: {} Was the author pleased?", least=5, most=40),
    partial(with_examples, session="shots"),
    partial(numeric_rows, session=""),
    partial(same_prompt_64_times, session="evaluation-1"),
    partial(monitor, text="Probe {} at {}: reply with the single word OK.", answer=None),
    partial(monitor, text=f"Repeat after me: {FOX}", answer=FOX),
    partial(two_monitors, probes=THREE_PROBES, answer=None),
]
