"""A local engine that says yes or no to what it is asked for an opinion of, beside the scripted upstream."""

import json
import re
from collections.abc import Callable

from router.testing.upstream import Answer, Ask, Behaviour, Break, Page, Recorded, Upstream

JUDGE = "judge"
_QUESTION = re.compile(r'^(\d+)\. Text: (".*")$', re.MULTILINE)
_MARKED = re.compile("⟦(.*?)⟧")
Says = Callable[[str], str]
"""The text around a value, with its marks → what is said of it."""


class Judge(Upstream):
    """`says` answers each question that the model `judge` is asked; a text in its place is the whole answer."""

    says: Says | str = "yes"
    status = 200
    breaks: Break | None = None

    @property
    def bodies(self) -> list[str]:
        """What the judge was sent."""
        return [request.body.decode() for request in self.requests if request.json["model"] == JUDGE]

    @property
    def asked(self) -> list[list[str]]:
        """The values of each question."""
        return [[_MARKED.findall(text)[0] for _, text in questions(body)] for body in self.bodies]

    def clear(self) -> None:
        super().clear()
        self.says, self.status, self.breaks = "yes", 200, None

    def page(self, request: Recorded) -> Page | None:
        return None if self.status == 200 or request.json["model"] != JUDGE else Page((b"{}",), self.status)

    def behaviour(self, ask: Ask) -> Behaviour | None:
        if ask.model != JUDGE:
            return super().behaviour(ask)
        says = self.says
        if not isinstance(says, str):
            says = json.dumps({number: says(text) for number, text in questions(json.dumps(ask.body))})
        answer = Answer(text=(says,))
        return Behaviour(answer=lambda *_: answer, breaks=self.breaks)


def questions(body: str) -> list[tuple[str, str]]:
    """Number and text."""
    content = json.loads(body)["messages"][-1]["content"]
    return [(number, json.loads(text)) for number, text in _QUESTION.findall(content)]
