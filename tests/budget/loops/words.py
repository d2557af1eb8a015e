"""Texts of seeded chance: prose with a natural spread of words, and the small talk of agents with nothing to say."""

from functools import cache
from itertools import accumulate
from random import Random

_FREQUENT = """
    the of and to a in is it that for was on are as with they at be this have from or one had by but not what all were
    we when your can said there use an each which she do how their if will up other about out many then them these so
    some her would make like him into time has look two more write go see number no way could people my than first
"""
_PIECES = (
    "ba ce di fo gu ka le mi no pu ra se ti vo xa ble tion ment ing er al ic ous ist ant ry ter con pro ex in re de"
)
_OPENINGS = (
    "Thanks so much",
    "Thank you again",
    "Great to hear",
    "Sounds good",
    "Perfect",
    "Wonderful",
    "Absolutely",
    "Of course",
    "No problem at all",
    "You are most welcome",
    "Glad to help",
    "Happy to help",
    "Likewise",
    "Excellent",
)
_MIDDLES = (
    "I really appreciate your support with this task",
    "I am here whenever you are ready to continue",
    "everything is set up on my side and I will wait for your next message",
    "please let me know if there is anything else you need",
    "I will keep monitoring and update you as soon as something changes",
    "feel free to reach out at any time if you have further questions",
    "it has been a pleasure working together with you on this",
    "I will stand by until you confirm the next step",
    "let me know how you would like to proceed from here",
    "there is nothing further to report at this point",
)
_CLOSINGS = (
    "Talk to you soon!",
    "Have a great day!",
    "Looking forward to it.",
    "Take care!",
    "Just say the word.",
    "I am ready when you are.",
    "Until then, all the best.",
    "Let me know.",
    "Ready when you are!",
    "Standing by.",
)


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    random = Random(7)  # noqa: S311
    pieces = _PIECES.split()
    made = {"".join(random.choices(pieces, k=random.randint(2, 4))) for _ in range(9_000)}
    words = _FREQUENT.split() + sorted(made, key=lambda word: random.random())
    return words, list(accumulate(1 / (rank + 3) for rank in range(len(words))))


def prose(random: Random, words: int) -> str:
    """By Zipf's law, as in a natural text."""
    known, weights = _vocabulary()
    return " ".join(random.choices(known, cum_weights=weights, k=words)).capitalize() + "."


def small_talk(random: Random, drift: float = 0.02) -> str:
    """About 30 words that say nothing; a share of `drift` is of the kind that never came before."""
    first, second = random.choice(_MIDDLES), random.choice(_MIDDLES)
    said = f"{random.choice(_OPENINGS)}, {first}, and {second}. {random.choice(_CLOSINGS)}"
    return " ".join(prose(random, 1).strip(".") if random.random() < drift else word for word in said.split())


def hanzi(random: Random, characters: int) -> str:
    """Chinese by the look of it: no blanks, 2,000 characters."""
    known, weights = range(0x4E00, 0x55D0), _vocabulary()[1][:2_000]
    return "".join(map(chr, random.choices(known, cum_weights=weights, k=characters))) + "。"


def hanzi_small_talk(random: Random) -> str:
    phrases = (
        "好的谢谢你的帮助",
        "如果还有其他问题请随时告诉我",
        "我会在这里等你的消息",
        "一切都已经准备好了",
        "祝你有愉快的一天",
        "非常感谢期待再次合作",
    )
    return "，".join(random.sample(phrases, 3)) + "。"
