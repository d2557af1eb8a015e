"""Conversations that must pass, however long: people, agents with tools, agents with each other, searches."""

from functools import partial

from tests.budget.loops.world import MINUTE, SECOND, Message, World, assistant, call, cases, system, user


def coding_agent(world: World, window: int = 10_000, session: str = "") -> None:
    messages: list[Message] = [system(world.prose(80)), user(world.prose(60))]
    for number in range(200):
        world.wait(5 * SECOND, 40 * SECOND)
        world.ask("coder", [*messages[:2], *messages[2:][-window:]], session=session)
        if world.random.random() < 0.5:
            path, content = f"src/{world.prose(1)[:-1]}.py", world.prose(120)
            messages += call("write_file", f'{{"path": "{path}", "content": "{content}"}}', number, "ok")
        else:
            messages += call("run_tests", "{}", number, "FAILED " + world.prose(60))


def scan_of_hosts(world: World) -> None:
    """Every result says the same; the calls get on."""
    hosts = "Check all hosts: " + " ".join(f"host-{n}" for n in range(200))
    messages: list[Message] = [system("You check hosts."), user(hosts)]
    for number in range(200):
        world.ask("ops", messages)
        messages += call("ping", f'{{"host": "host-{number}"}}', number, "timeout after 5 seconds")


def search_of_drawers(world: World) -> None:
    messages: list[Message] = [user("Find the key in one of the drawers 1 to 40.")]
    for name in (f"drawer {number}" for number in range(1, 41)):
        for action, sight in (
            (f"go to {name}", f"The {name} is closed."),
            (f"open {name}", f"You open the {name}. The {name} is open. In it, you see nothing."),
        ):
            world.ask("player", messages)
            messages += [assistant(action), user(sight)]


def patient_poll(world: World) -> None:
    """20 looks at a job between two pieces of work."""
    messages: list[Message] = [user(world.prose(40))]
    for number in range(150):
        world.wait(30 * SECOND)
        world.ask("ops", messages)
        if number % 25 < 20:
            messages += call("status", '{"job": 7}', number, f"running, {number} of 150 steps")
        else:
            messages += call("bash", world.prose(20), number, world.prose(50))


def steady_poll(world: World) -> None:
    """A job that takes 100 looks."""
    messages: list[Message] = [user(world.prose(40))]
    for number in range(100):
        world.wait(10 * SECOND)
        world.ask("ops", messages)
        messages += call("status", '{"job": 7}', number, f"running, {number} % done")


def long_talk(world: World, session: str = "") -> None:
    messages: list[Message] = [system(world.prose(50))]
    for _ in range(250):
        messages.append(user(world.prose(3, 40)))
        world.ask("person", messages, session=session)
        messages.append(assistant(world.prose(20, 150)))


def yes_go_on(world: World) -> None:
    messages: list[Message] = [user(world.prose(20))]
    for _ in range(150):
        world.ask("reader", messages, session="story")
        messages.append(assistant(world.prose(120)))
        messages.append(user(world.random.choice(("yes", "go on", "ok", "continue please"))))


def chinese_talk(world: World) -> None:
    messages: list[Message] = []
    for _ in range(120):
        messages.append(user(world.hanzi(25)))
        world.ask("person", messages)
        messages.append(assistant(world.hanzi(90)))


def polite_talk(world: World) -> None:
    """Twelve courtesies between two tasks."""
    messages: list[Message] = []
    for number in range(120):
        idle = number % 20 < 12
        messages.append(user(world.small_talk() if idle else world.prose(40)))
        world.ask("person", messages)
        messages.append(assistant(world.small_talk() if idle else world.prose(80)))


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


def two_agents_at_work(world: World) -> None:
    text = world.prose(40)
    for number in range(400):
        world.wait(MINUTE)
        answer = world.prose(20, 60)
        world.ask(("planner", "doer")[number % 2], text, answer=answer)
        text = answer


def book(world: World) -> None:
    """A summary that grows by a chapter each time: every prompt quotes the answer before."""
    summary = world.prose(60)
    for _ in range(200):
        answer = " ".join([*summary.split()[:40], world.prose(20)])
        world.ask("reader", summary + "\n\nNext chapter: " + world.prose(300), answer=answer)
        summary = answer


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
        messages = [*messages, assistant(world.prose(40)), user(world.prose(20))]


def tree_search(world: World) -> None:
    """Eight branches from every node; their words are much the same."""
    messages: list[Message] = [user(world.prose(40))]
    for _ in range(50):
        words = world.prose(30).split()
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
            text = "Hello! How can I help you today?" if turn == 0 else world.prose(25)
            talk += [assistant(text), user(world.prose(10) if turn else "I want a refund")]


def many_users_of_one_key(world: World) -> None:
    """A product: everybody asks something, each in a session."""
    for number in range(300):
        messages: list[Message] = [system("You are the assistant of a shop. Be brief and polite.")]
        for _ in range(world.random.randint(1, 8)):
            messages.append(user(world.prose(2, 20)))
            world.ask("shop", messages, session=f"visitor-{number}")
            messages.append(assistant(world.prose(30)))


TALKS = [
    *cases(__name__),
    partial(coding_agent, session="task-1"),
    partial(coding_agent, window=20),
    partial(long_talk, session="talk"),
]
