"""Single requests that must pass, however much they are alike: batches, samples, monitors, bursts."""

from collections.abc import Callable

from router.types.request import Endpoint
from tests.budget.loops.words import prose
from tests.budget.loops.world import MINUTE, SECOND, Message, World, assistant, system, user

TEMPLATE = (
    "You are a careful annotator. Read the product review below and decide whether its author was pleased. Answer with"
    " one word, positive or negative, and with nothing else. Do not explain your choice.\n\nReview: {}\n\nSentiment:"
)
HEALTH = [user("Health check. Reply with the single word OK.")]


def batch_of_reviews(world: World, session: str = "") -> None:
    for _ in range(5_000):
        world.ask("batch", [user(TEMPLATE.format(prose(world.random, world.random.randint(4, 40))))], session=session)


def batch_of_reviews_in_a_session(world: World) -> None:
    batch_of_reviews(world, "reviews-1")


def batch_with_two_keys_in_turn(world: World) -> None:
    for number in range(4_000):
        world.ask(("one", "two")[number % 2], [user(TEMPLATE.format(prose(world.random, world.random.randint(6, 30))))])


def queries_with_two_keys_in_turn(world: World) -> None:
    for number in range(2_000):
        world.ask(("one", "two")[number % 2], [user(prose(world.random, world.random.randint(3, 9)))])


def short_template_with_two_keys_in_turn(world: World) -> None:
    for number in range(2_000):
        review = prose(world.random, world.random.randint(5, 40))
        world.ask(("one", "two")[number % 2], [user(f"Review: {review} Was the author pleased?")])


def batch_with_examples(world: World, session: str = "") -> None:
    shots = [system("Classify.")]
    for _ in range(12):
        shots += [user(prose(world.random, 15)), assistant(world.random.choice(("positive", "negative")))]
    for _ in range(2_000):
        world.ask("batch", [*shots, user(prose(world.random, world.random.randint(4, 30)))], session=session)


def batch_with_examples_in_a_session(world: World) -> None:
    batch_with_examples(world, "shots")


def batch_of_numbers(world: World) -> None:
    for _ in range(5_000):
        world.ask(
            "sums", [user(f"What is {world.random.randint(2, 99)} + {world.random.randint(2, 99)}? Only the number.")]
        )


def batch_of_readings(world: World) -> None:
    for _ in range(5_000):
        room, state = world.random.choice(("kitchen", "bath", "hall")), world.random.choice(("ok", "warm", "cold"))
        world.ask(
            "sensors",
            [user(f"Sensor {world.random.randint(1, 40)} in the {room} reads {world.random.random():.2f}: {state}.")],
        )


def batch_with_known_answers(world: World) -> None:
    for _ in range(2_000):
        world.ask("batch", [user(TEMPLATE.format(prose(world.random, 20)))], answer=prose(world.random, 12))


def same_prompt_64_times(world: World, session: str = "") -> None:
    for _ in range(40):
        prompt = [user(prose(world.random, 80))]
        for _ in range(64):
            world.ask("evaluation", prompt, session=session, answer=prose(world.random, 40))


def same_prompt_64_times_in_a_session(world: World) -> None:
    same_prompt_64_times(world, "evaluation-1")


def same_transcript_64_times(world: World) -> None:
    for _ in range(40):
        prompt = [user(prose(world.random, 30)), assistant(prose(world.random, 60)), user(prose(world.random, 30))]
        world.ask("evaluation", prompt[:1])
        for _ in range(64):
            world.ask("evaluation", prompt, answer=prose(world.random, 40))


def five_hundred_at_once(world: World) -> None:
    for _ in range(6):
        world.together("burst", [HEALTH] * 500, session="s")


def load_test(world: World) -> None:
    """32 connections, one prompt, a session each and a session for all."""
    for _ in range(100):
        world.together("load", [HEALTH] * 32, session="all")
        world.together("load", [HEALTH] * 32)


def refused_again_and_again(world: World) -> None:
    """Its budget is spent: nothing is sent, so nothing runs away."""
    for _ in range(500):
        world.ask("poor", HEALTH, session="s", sent=False, cost=0)


def monitor(world: World) -> None:
    for _ in range(9 * 24 * 60):
        world.wait(MINUTE)
        world.ask("monitor", HEALTH, answer="OK")


def monitor_with_a_clock(world: World) -> None:
    for number in range(9 * 24 * 60):
        world.wait(MINUTE)
        world.ask("monitor", [user(f"Probe {number} at {world.now}: reply with the single word OK.")])


def monitor_that_has_itself_repeated(world: World) -> None:
    sentence = "the quick brown fox jumps over the lazy dog"
    for _ in range(5_000):
        world.wait(MINUTE)
        world.ask("monitor", [user(f"Repeat after me: {sentence}")], answer=sentence)


def two_monitors(world: World) -> None:
    """Of two regions, strictly by turns."""
    for number in range(9 * 24 * 60):
        world.wait(30 * SECOND)
        world.ask(("east", "west")[number % 2], HEALTH, answer="OK")


def two_monitors_of_three_probes(world: World) -> None:
    probes = ("What is the capital of France?", "Spell the word cat.", "Say yes.")
    for number in range(9 * 24 * 60):
        world.wait(30 * SECOND)
        world.ask(("east", "west")[number % 2], [user(probes[number // 2 % 3])])


def embeddings(world: World) -> None:
    for _ in range(1_000):
        world.ask("index", [user("the same text")], session="s", endpoint=Endpoint.EMBEDDINGS)


def images(world: World) -> None:
    """The same words to another image, in one session."""
    for number in range(1_000):
        parts: list[Message] = [
            {"type": "text", "text": "Describe this image."},
            {"type": "image_url", "image_url": {"url": f"data:{number}"}},
        ]
        world.ask("vision", [{"role": "user", "content": parts}], session="photos")


def dear_batch(world: World) -> None:
    """A key that spends little all week, and then 40 USD in a few minutes."""
    for _ in range(7 * 24 * 6):
        world.wait(10 * MINUTE)
        world.ask("team", [user(prose(world.random, 20))], cost=5_000_000)
    for _ in range(400):
        world.wait(SECOND)
        world.ask("team", [user(prose(world.random, 20))], cost=100_000_000)


def nightly_job(world: World) -> None:
    """60 USD in ten minutes every night, a few cents a day else."""
    for _ in range(21):
        for _ in range(60):
            world.wait(20 * MINUTE)
            world.ask("team", [user(prose(world.random, 20))], cost=20_000_000)
        for _ in range(60):
            world.wait(SECOND)
            world.ask("team", [user(prose(world.random, 20))], cost=700_000_000)


ALL: tuple[Callable[[World], None], ...] = tuple(
    value for name, value in list(globals().items()) if getattr(value, "__module__", "") == __name__ and name[0] != "_"
)
