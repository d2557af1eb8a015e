"""Traffic that must pass, beside the table's, however much or long it is alike: samples, bursts, conversations."""

from collections.abc import Callable
from functools import partial

from tests.budget.loops.messages import SECOND, Message, assistant, call, exchange, system, user
from tests.budget.loops.world import Case, Pause, World, cases, sequences

More = Callable[[World, int], list[Message]]
HEALTH = "Health check. Reply with the single word OK."
TASK = [system("You help people with what they do."), user("Look after the job that Ann began on Monday, please.")]


# Single requests


def images(world: World) -> None:
    """The same words to another image."""
    for number in range(1_000):
        shown = {"type": "image_url", "image_url": {"url": f"data:{number}"}}
        content = [{"type": "text", "text": "Describe this image."}, shown]
        world.ask("vision", [{"role": "user", "content": content}], session="photos")


def samples_of_a_transcript(world: World) -> None:
    for _ in range(20):
        prompt = [user(world.prose(80))]
        world.ask("evaluation", prompt)
        prompt += exchange(world.prose(5, 60), world.prose(25))
        for _ in range(64):
            world.ask("evaluation", prompt, answer=world.prose(40))


def load_test(world: World) -> None:
    """Many connections, one prompt, a session each and a session for all."""
    for connections in [32] * 40 + [500] * 3:
        world.together("load", [HEALTH] * connections, session="all")
        world.together("load", [HEALTH] * connections)


# Conversations


def _coding(world: World, number: int) -> list[Message]:
    if world.random.random() < 0.5:
        path, content = f"src/{world.prose(1)[:-1]}.py", world.prose(120)
        return call("write_file", f'{{"path": "{path}", "content": "{content}"}}', number, "ok")
    return call("run_tests", "{}", number, "FAILED " + world.prose(60))


def _patient(world: World, number: int) -> list[Message]:
    """20 looks at a job between two pieces of work."""
    if number % 25 < 20:
        return call("status", '{"job": 7}', number, f"running, {number} % done")
    return call("bash", world.prose(20), number, world.prose(50))


def _polite(world: World, number: int) -> list[Message]:
    """Twelve courtesies between two tasks."""
    idle = number % 20 < 12
    return exchange(*[world.small_talk() if idle else world.prose(words) for words in (80, 40)])


def _talk(world: World, turns: int, more: More, every: Pause = 0, session: str = "", window: int = 10_000) -> None:
    messages: list[Message] = []
    for turn in range(turns):
        world.wait(every)
        world.ask("agent", [*TASK, *messages[-window:]], session=session)
        messages += more(world, turn)


def many_users_of_one_key(world: World) -> None:
    """A product: everybody asks something, each in a session."""
    for number in range(300):
        messages = [system("You are the assistant of a shop. Be brief and polite."), user(world.prose(2, 20))]
        for _ in range(world.random.randint(1, 8)):
            world.ask("shop", messages, session=f"visitor-{number}")
            messages += exchange(world.prose(20, 150), world.prose(3, 40))


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
        for _ in range(8):
            world.ask("sampler", messages, session="samples")
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


_CODING = partial(_talk, turns=200, more=_coding, every=[5 * SECOND, 40 * SECOND])
SOUND: dict[str, Case] = cases(__name__) | {
    "coding_agent": _CODING,
    "coding_agent_in_a_session": partial(_CODING, session="task-1"),
    "coding_agent_with_a_window": partial(_CODING, window=20),
    "patient_poll": partial(_talk, turns=150, more=_patient, every=30 * SECOND),
    "polite_talk": partial(_talk, turns=120, more=_polite),
    **sequences("sound"),
}
