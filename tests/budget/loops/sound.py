"""Traffic that must pass, however much or long it is alike: batches, samples, monitors, bursts, conversations."""

from functools import partial

from router.types.request import Endpoint
from tests.budget.loops.messages import DAY, MINUTE, SECOND, Message, assistant, call, exchange, system, user
from tests.budget.loops.world import Case, World, asks, cases, talk

REVIEW = (
    "You are a careful annotator. Read the product review below and decide whether its author was pleased. Answer with"
    " one word, positive or negative, and with nothing else. Do not explain your choice.\n\nReview: {}\n\nSentiment:"
)
HEALTH = "Health check. Reply with the single word OK."
FOX = "the quick brown fox jumps over the lazy dog"
THREE_PROBES = ("What is the capital of France?", "Spell the word cat.", "Say yes.")
TASK = [system("You help people with what they do."), user("Look after the job that Ann began on Monday, please.")]
HOSTS = [system("You check hosts."), user("Check all hosts: " + " ".join(f"host-{number}" for number in range(200)))]
REGIONS = ("east", "west")
GO_ON = ("yes", "go on", "ok", "continue please")


# Single requests


def _review(world: World, number: int, frame: str = REVIEW, least: int = 4, most: int = 40) -> str:
    return frame.format(world.prose(least, most))


def _reading(world: World, number: int) -> str:
    room, state = world.random.choice(("kitchen", "bath", "hall")), world.random.choice(("ok", "warm", "cold"))
    return f"Sensor {world.random.randint(1, 40)} in the {room} reads {world.random.random():.2f}: {state}."


def _row_of_numbers(world: World, number: int) -> str:
    """Of a CSV file, one a request."""
    return "Is this row plausible? " + ",".join(f"{world.random.uniform(0, 1000):.2f}" for _ in range(6))


def _image(world: World, number: int) -> list[Message]:
    """The same words to another image."""
    shown = {"type": "image_url", "image_url": {"url": f"data:{number}"}}
    return [{"role": "user", "content": [{"type": "text", "text": "Describe this image."}, shown]}]


def _samples(world: World, times: int, each: int, session: str = "", every: int = 0, start: str = "") -> None:
    """Many answers to a prompt: a text, one with an example, or a transcript of which the start was sent before."""
    for _ in range(times):
        prompt = [user(world.prose(80))]
        if start == "sent before":
            world.ask("evaluation", prompt)
        if start:
            prompt += exchange(world.prose(5, 60), world.prose(25))
        asks(each, prompt, "evaluation", every=every, session=session, answer=lambda world, _: world.prose(40))(world)


def _spends(world: World, times: int, every: int, nano_usd: int) -> None:
    asks(times, lambda world, _: world.prose(20), "team", every=every, cost=nano_usd)(world)


def with_examples(world: World, session: str = "") -> None:
    shots = [system("Classify.")]
    for _ in range(12):
        shots += [user(world.prose(15)), assistant(world.random.choice(("positive", "negative")))]
    asks(1_500, lambda world, _: [*shots, user(world.prose(4, 30))], "batch", session=session)(world)


def five_hundred_at_once(world: World) -> None:
    for _ in range(6):
        world.together("burst", [HEALTH] * 500, session="s")


def load_test(world: World) -> None:
    """32 connections, one prompt, a session each and a session for all."""
    for _ in range(40):
        world.together("load", [HEALTH] * 32, session="all")
        world.together("load", [HEALTH] * 32)


def dear_batch(world: World) -> None:
    """A key that spends little all week, and then 40 USD in a few minutes."""
    _spends(world, 7 * DAY // (10 * MINUTE), 10 * MINUTE, 5_000_000)
    _spends(world, 400, SECOND, 100_000_000)


def every_night(world: World) -> None:
    """60 USD in ten minutes every night, a few cents a day else."""
    for _ in range(21):
        _spends(world, 60, 20 * MINUTE, 20_000_000)
        _spends(world, 60, SECOND, 700_000_000)


# Conversations


def _coding(world: World, number: int) -> list[Message]:
    if world.random.random() < 0.5:
        path, content = f"src/{world.prose(1)[:-1]}.py", world.prose(120)
        return call("write_file", f'{{"path": "{path}", "content": "{content}"}}', number, "ok")
    return call("run_tests", "{}", number, "FAILED " + world.prose(60))


def _search(world: World, number: int) -> list[Message]:
    name = f"drawer {number // 2 + 1}"
    seen = f"You open the {name}. The {name} is open. In it, you see nothing."
    return exchange(f"open {name}", seen) if number % 2 else exchange(f"go to {name}", f"The {name} is closed.")


def _look(world: World, number: int) -> list[Message]:
    return call("status", '{"job": 7}', number, f"running, {number} % done")


def _look_and_work(world: World, number: int) -> list[Message]:
    """20 looks at a job between two pieces of work."""
    return _look(world, number) if number % 25 < 20 else call("bash", world.prose(20), number, world.prose(50))


def _long_talk(world: World, number: int) -> list[Message]:
    return exchange(world.prose(20, 150), world.prose(3, 40))


def _polite(world: World, number: int) -> list[Message]:
    """Twelve courtesies between two tasks."""
    idle = number % 20 < 12
    return exchange(*[world.small_talk() if idle else world.prose(words) for words in (80, 40)])


def many_users_of_one_key(world: World) -> None:
    """A product: everybody asks something, each in a session."""
    for number in range(300):
        start = [system("You are the assistant of a shop. Be brief and polite."), user(world.prose(2, 20))]
        talk(world.random.randint(1, 8), "shop", start, _long_talk, session=f"visitor-{number}")(world)


def writer_and_critic(world: World) -> None:
    """Two keys pass drafts to and fro, six times each; a draft keeps most of its words."""
    for _ in range(60):
        draft = world.prose(90).split()
        for _ in range(6):
            critique = world.prose(30)
            world.ask("critic", [system("Criticise."), user(" ".join(draft))], answer=critique)
            for place in range(0, len(draft), 7):
                draft[place] = world.prose(1)[:-1]
            world.ask("writer", [system("Improve."), user(critique)], answer=" ".join(draft))


def _summary(world: World, number: int) -> str:
    """Of a book: it grows by a chapter each time, and every prompt quotes the one before."""
    return " ".join([*world.last.split()[:40], world.prose(20)])


def there_and_back(world: World) -> None:
    for _ in range(500):
        text, translated = world.prose(40), world.prose(40)
        world.ask("translator", text, answer=translated)
        world.ask("translator", translated, answer=text)


def one_question_to_thirty(world: World) -> None:
    """A planner's answer is the prompt of thirty personas, with one key and with many."""
    for number in range(20):
        question = world.prose(25)
        world.ask("planner", world.prose(20), answer=question)
        for persona in range(30):
            key = f"persona-{persona}" if number % 2 else "planner"
            role = system(f"You are persona {persona}: " + world.prose(persona))
            world.ask(key, [role, user(question)], answer=world.prose(20))


def debate(world: World) -> None:
    """A moderator sums up what five text, in the same session; each keeps a transcript."""
    transcripts: list[list[Message]] = [[] for _ in range(5)]
    text = world.prose(20)
    for _ in range(30):
        answers = []
        for number, transcript in enumerate(transcripts):
            transcript.append(user(text))
            answers.append(world.prose(30))
            world.ask(f"debater-{number}", transcript, session="debate", answer=answers[-1])
            transcript.append(assistant(answers[-1]))
        text = world.prose(25)
        world.ask("moderator", [system("Sum up."), user("\n".join(answers))], session="debate", answer=text)


def every_turn_eight_times(world: World) -> None:
    messages: list[Message] = [user(world.prose(40))]
    for _ in range(60):
        asks(8, messages, "sampler", session="samples")(world)
        messages = messages + exchange(world.prose(40), world.prose(20))


def tree_search(world: World) -> None:
    """Eight branches from every node; their words are much the same."""
    messages: list[Message] = [user(world.prose(40))]
    for _ in range(50):
        words = world.prose(30).split()
        branches = [messages + exchange(" ".join(world.random.sample(words, 25)), "Go on.") for _ in range(8)]
        for branch in branches:
            world.ask("searcher", branch)
        messages = world.random.choice(branches)


def parallel_rollouts(world: World) -> None:
    """32 talks that begin in the same way."""
    talks: list[list[Message]] = [[system("You are a shop."), user("Hello")] for _ in range(32)]
    for turn in range(25):
        world.together("simulator", talks)
        for messages in talks:
            answer = world.prose(25) if turn else "Hello! How can I help you today?"
            messages += exchange(answer, world.prose(10) if turn else "I want a refund")


SOUND: dict[str, Case] = cases(__name__) | {
    "reviews": asks(1_500, _review, "batch"),
    "reviews_in_a_session": asks(1_500, _review, "batch", session="reviews-1"),
    "reviews_of_known_answers": asks(1_500, _review, "batch", answer=lambda world, _: world.prose(12)),
    "two_keys_in_turn": asks(1_500, _review, *REGIONS),
    "a_few_words_of_two_keys": asks(1_500, partial(_review, frame="{}", least=3, most=9), *REGIONS),
    "short_frames_of_two_keys": asks(1_500, partial(_review, frame="Review: {} Was the author pleased?"), *REGIONS),
    "with_examples_in_a_session": partial(with_examples, session="shots"),
    "readings": asks(1_500, _reading, "sensors"),
    "rows_of_numbers": asks(1_000, _row_of_numbers, "batch"),
    "rows_of_numbers_in_a_session": asks(1_000, _row_of_numbers, "batch", session="table"),
    "images": asks(1_000, _image, "vision", session="photos"),
    "embeddings": asks(1_000, "the same text", "index", session="s", endpoint=Endpoint.EMBEDDINGS),
    "same_prompt_64_times": partial(_samples, times=20, each=64),
    "same_prompt_64_times_in_a_session": partial(_samples, times=20, each=64, session="evaluation-1"),
    "same_transcript_64_times": partial(_samples, times=20, each=64, start="sent before"),
    "samples_of_few_shots": partial(_samples, times=4, each=100, start="examples", every=2 * SECOND),
    "refused_as_its_budget_is_spent": asks(500, HEALTH, "poor", session="s", sent=False, cost=0),
    "monitor": asks(2_880, HEALTH, "monitor", every=MINUTE, answer="OK"),
    "monitor_that_counts": asks(
        2_880, lambda world, n: f"Probe {n} at {world.now}: reply with the single word OK.", "monitor", every=MINUTE
    ),
    "monitor_of_an_echo": asks(2_880, f"Repeat after me: {FOX}", "monitor", every=MINUTE, answer=FOX),
    "two_monitors": asks(2_880, HEALTH, *REGIONS, every=30 * SECOND, answer="OK"),
    "three_probes": asks(2_880, lambda _, number: THREE_PROBES[number // 2 % 3], *REGIONS, every=30 * SECOND),
    "two_agents_at_work": asks(
        400, lambda world, _: world.last, "planner", "doer", every=MINUTE, answer=lambda world, _: world.prose(20, 60)
    ),
    "book": asks(200, lambda world, _: f"{world.last}\n\nNext chapter: {world.prose(300)}", "reader", answer=_summary),
    "coding_agent": talk(200, "coder", TASK, _coding, every=(5 * SECOND, 40 * SECOND)),
    "coding_agent_in_a_session": talk(200, "coder", TASK, _coding, every=(5 * SECOND, 40 * SECOND), session="task-1"),
    "coding_agent_with_a_window": talk(200, "coder", TASK, _coding, every=(5 * SECOND, 40 * SECOND), window=20),
    # Every result says the same; the calls get on.
    "scan_of_hosts": talk(200, "ops", HOSTS, lambda _, n: call("ping", f'{{"host": "{n}"}}', n, "timeout after 5 s")),
    "search_of_drawers": talk(80, "player", [user("Find the key in one of the drawers 1 to 40.")], _search),
    "patient_poll": talk(150, "ops", TASK, _look_and_work, every=30 * SECOND),
    "steady_poll": talk(100, "ops", TASK, _look, every=10 * SECOND),
    "long_talk": talk(250, "person", TASK, _long_talk),
    "long_talk_in_a_session": talk(250, "person", TASK, _long_talk, session="talk"),
    "yes_go_on": talk(150, "reader", TASK, lambda world, n: exchange(world.prose(120), GO_ON[n % 4]), session="story"),
    "chinese_talk": talk(120, "person", [user("你好。")], lambda world, _: exchange(world.hanzi(90), world.hanzi(25))),
    "polite_talk": talk(120, "person", TASK, _polite),
}
