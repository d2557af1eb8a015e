"""Conversations that must pass, however long: people, agents with tools, agents with each other, searches."""

from collections.abc import Callable

from tests.budget.loops.words import hanzi, prose, small_talk
from tests.budget.loops.world import MINUTE, SECOND, Message, World, assistant, call, result, system, user


def _coding(world: World, window: int | None = None, session: str = "") -> None:
    messages: list[Message] = [system(prose(world.random, 80)), user(prose(world.random, 60))]
    for number in range(200):
        world.wait(5 * SECOND, 40 * SECOND)
        world.ask("coder", [*messages[:2], *messages[2:][-(window or 10_000) :]], session=session)
        if world.random.random() < 0.5:
            path, content = f"src/{prose(world.random, 1)[:-1]}.py", prose(world.random, 120)
            messages += [
                *call("write_file", f'{{"path": "{path}", "content": "{content}"}}', number),
                result("ok", number),
            ]
        else:
            messages += [*call("run_tests", "{}", number), result("FAILED " + prose(world.random, 60), number)]


def coding_agent(world: World) -> None:
    _coding(world)


def coding_agent_in_a_session(world: World) -> None:
    _coding(world, session="task-1")


def coding_agent_with_a_window(world: World) -> None:
    _coding(world, window=20)


def scan_of_hosts(world: World) -> None:
    """Every result says the same; the calls get on."""
    messages: list[Message] = [
        system("You check hosts."),
        user("Check all hosts: " + " ".join(f"host-{n}" for n in range(200))),
    ]
    for number in range(200):
        world.ask("ops", messages)
        messages += [*call("ping", f'{{"host": "host-{number}"}}', number), result("timeout after 5 seconds", number)]


def search_of_drawers(world: World) -> None:
    messages: list[Message] = [user("Find the key in one of the drawers 1 to 40.")]
    for number in range(1, 41):
        for said, heard in (
            (f"go to drawer {number}", f"The drawer {number} is closed."),
            (
                f"open drawer {number}",
                f"You open the drawer {number}. The drawer {number} is open. In it, you see nothing.",
            ),
        ):
            world.ask("player", messages)
            messages += [assistant(said), user(heard)]


def patient_poll(world: World) -> None:
    """20 looks at a job between two pieces of work."""
    messages: list[Message] = [user(prose(world.random, 40))]
    for number in range(150):
        world.wait(30 * SECOND)
        world.ask("ops", messages)
        if number % 25 < 20:
            messages += [*call("status", '{"job": 7}', number), result(f"running, {number} of 150 steps", number)]
        else:
            messages += [*call("bash", prose(world.random, 20), number), result(prose(world.random, 50), number)]


def long_talk(world: World, session: str = "") -> None:
    messages: list[Message] = [system(prose(world.random, 50))]
    for _ in range(250):
        messages.append(user(prose(world.random, world.random.randint(3, 40))))
        world.ask("person", messages, session=session)
        messages.append(assistant(prose(world.random, world.random.randint(20, 150))))


def long_talk_in_a_session(world: World) -> None:
    long_talk(world, "talk")


def yes_go_on(world: World) -> None:
    messages: list[Message] = [user(prose(world.random, 20))]
    for _ in range(150):
        world.ask("reader", messages, session="story")
        messages += [
            assistant(prose(world.random, 120)),
            user(world.random.choice(("yes", "go on", "ok", "continue please"))),
        ]


def chinese_talk(world: World) -> None:
    messages: list[Message] = []
    for _ in range(120):
        messages.append(user(hanzi(world.random, 25)))
        world.ask("person", messages)
        messages.append(assistant(hanzi(world.random, 90)))


def polite_talk(world: World) -> None:
    """Twelve courtesies between two tasks."""
    messages: list[Message] = []
    for number in range(120):
        idle = number % 20 < 12
        messages.append(user(small_talk(world.random) if idle else prose(world.random, 40)))
        world.ask("person", messages)
        messages.append(assistant(small_talk(world.random) if idle else prose(world.random, 80)))


def writer_and_critic(world: World) -> None:
    """Two keys pass drafts to and fro, six times each; a draft keeps most of its words."""
    for _ in range(60):
        draft = prose(world.random, 90).split()
        for _ in range(6):
            critique = prose(world.random, 30)
            world.ask("critic", [system("Criticise."), user(" ".join(draft))], answer=critique)
            for place in range(0, len(draft), 7):
                draft[place] = prose(world.random, 1)[:-1]
            world.ask("writer", [system("Improve."), user(critique)], answer=" ".join(draft))


def two_agents_at_work(world: World) -> None:
    said = prose(world.random, 40)
    for number in range(400):
        world.wait(MINUTE)
        answer = prose(world.random, world.random.randint(20, 60))
        world.ask(("planner", "doer")[number % 2], [user(said)], answer=answer)
        said = answer


def book(world: World) -> None:
    """A summary that grows by a chapter each time: every prompt quotes the answer before."""
    summary = prose(world.random, 60)
    for _ in range(200):
        answer = " ".join([*summary.split()[:40], prose(world.random, 20)])
        world.ask("reader", [user(summary + "\n\nNext chapter: " + prose(world.random, 300))], answer=answer)
        summary = answer


def there_and_back(world: World) -> None:
    for _ in range(500):
        text, translated = prose(world.random, 40), prose(world.random, 40)
        world.ask("translator", [user(text)], answer=translated)
        world.ask("translator", [user(translated)], answer=text)


def one_question_to_thirty(world: World) -> None:
    """A planner's answer is the prompt of thirty personas, with one key and with many."""
    for number in range(20):
        question = prose(world.random, 25)
        world.ask("planner", [user(prose(world.random, 20))], answer=question)
        for persona in range(30):
            key = f"persona-{persona}" if number % 2 else "planner"
            role = system(f"You are persona {persona}: " + prose(world.random, persona))
            world.ask(key, [role, user(question)], answer=prose(world.random, 20))


def debate(world: World) -> None:
    """A moderator sums up what five said, in the same session; each keeps a transcript."""
    transcripts: list[list[Message]] = [[] for _ in range(5)]
    said = prose(world.random, 20)
    for _ in range(30):
        answers = []
        for number, transcript in enumerate(transcripts):
            transcript.append(user(said))
            answers.append(prose(world.random, 30))
            world.ask(f"debater-{number}", transcript, session="debate", answer=answers[-1])
            transcript.append(assistant(answers[-1]))
        said = prose(world.random, 25)
        world.ask("moderator", [system("Sum up."), user("\n".join(answers))], session="debate", answer=said)


def every_turn_eight_times(world: World) -> None:
    messages: list[Message] = [user(prose(world.random, 40))]
    for _ in range(60):
        for _ in range(8):
            world.ask("sampler", messages, session="samples")
        messages = [*messages, assistant(prose(world.random, 40)), user(prose(world.random, 20))]


def tree_search(world: World) -> None:
    """Eight branches from every node; their words are much the same."""
    messages: list[Message] = [user(prose(world.random, 40))]
    for _ in range(50):
        words = prose(world.random, 30).split()
        branches = [[*messages, assistant(" ".join(world.random.sample(words, 25))), user("Go on.")] for _ in range(8)]
        for branch in branches:
            world.ask("searcher", branch)
        messages = world.random.choice(branches)


def parallel_rollouts(world: World) -> None:
    """32 talks that begin in the same way."""
    talks: list[list[Message]] = [[system("You are a shop."), user("Hello")] for _ in range(32)]
    for turn in range(25):
        world.together("simulator", talks)
        for talk in talks:
            said = "Hello! How can I help you today?" if turn == 0 else prose(world.random, 25)
            talk += [assistant(said), user(prose(world.random, 10) if turn else "I want a refund")]


def many_users_of_one_key(world: World) -> None:
    """A product: everybody asks something, each in a session."""
    for number in range(800):
        messages: list[Message] = [system("You are the assistant of a shop. Be brief and polite.")]
        for _ in range(world.random.randint(1, 8)):
            messages.append(user(prose(world.random, world.random.randint(2, 20))))
            world.ask("shop", messages, session=f"visitor-{number}")
            messages.append(assistant(prose(world.random, 30)))


ALL: tuple[Callable[[World], None], ...] = tuple(
    value for name, value in list(globals().items()) if getattr(value, "__module__", "") == __name__ and name[0] != "_"
)
