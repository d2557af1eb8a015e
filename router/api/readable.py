"""What of a request is text, and what nobody here can read: pictures, sounds, documents, and whatever is elsewhere."""

from collections.abc import Iterable, Sequence

from router.classify.views.inline import LEAST_BARE, MOST_DECODED, document, inline
from router.types.request import Modality, Passage, Path

_LINKS = {
    "image_url": Modality.IMAGE,
    "file_id": Modality.FILE,
    "file_url": Modality.FILE,
    "file_uri": Modality.FILE,
    "fileUri": Modality.FILE,
    "video_url": Modality.FILE,
}
"""Names whose string is an address of something that is not in the request, or that is all of it."""
_ADDRESSES = ("url", "uri")
_LINKED = {"image_url": Modality.IMAGE, "audio": Modality.AUDIO, "input_audio": Modality.AUDIO} | dict.fromkeys(
    ("source", "file", "document", "video", "video_url"), Modality.FILE
)
"""Objects with an address in them."""
_PAYLOADS = {"data": Modality.FILE, "file_data": Modality.FILE, "b64_json": Modality.IMAGE, "result": Modality.FILE}
_TEXTUAL = frozenset(
    {"text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal", "thinking", "redacted_thinking"}
    | {"tool_use", "tool_result", "tool_reference", "compaction"}
)
"""Parts of a message whose strings are all there is to them; what is encrypted there comes from the provider itself."""
_DOCUMENTS = frozenset({"file", "input_file", "document", "search_result"})
"""Parts that hold a text, a payload or an address."""
_KNOWN = _TEXTUAL | _DOCUMENTS | {"type"}
_LISTS = ("content", "parts", "output")


class Readable:
    """`passages`; `documents`, whose text is base64; what is `unscannable`.

    `bare` is base64 that nothing tells from text: a provider may make tokens of it, as it is.
    """

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self.documents: list[Passage] = []
        self.bare: list[str] = []
        self.unscannable: set[Modality] = set()
        self._left = MOST_DECODED

    @property
    def all(self) -> list[Passage]:
        return self.passages + self.documents if self.documents else self.passages

    def payload(self, path: Path, text: str, role: str, modality: Modality, least: int = 1) -> None:
        """What may be base64 of at least so many characters: a document where that is a text."""
        media = inline(text, least)
        if media is None:
            self.passages.append(Passage(path, text, role))
            return
        if len(media.payload) == len(text) and least == LEAST_BARE:
            self.bare.append(text)
        read = document(media.payload) if len(media.payload) <= self._left else None
        if read is None:
            self.unscannable.add(_KINDS.get(media.media_type.partition("/")[0], modality))
            return
        self._left -= len(media.payload)
        self.documents.append(Passage(path, text, role))
        if "base64," in read:
            self.unscannable.add(Modality.FILE)


def of_fields(found: Iterable[Passage], readable: Readable) -> None:
    """Strings of fields that say nothing of media: inline payloads alone are told apart."""
    for passage in found:
        if len(passage.text) < _SHORTEST:
            readable.passages.append(passage)
        else:
            readable.payload(passage.path, passage.text, passage.role, Modality.FILE, LEAST_BARE)


def of_messages(found: Sequence[Passage], readable: Readable) -> None:
    """Strings of messages or items whose form is not known in full."""
    for passage in found:
        path, text, role = passage.path, passage.text, passage.role
        name, holder = path[-1], path[-2] if len(path) > 1 else ""
        modality = _LINKED.get(str(holder), Modality.FILE)
        if text == name:
            readable.passages.append(passage)
            continue
        if text.startswith("data:") or len(text) >= LEAST_BARE or name in _PAYLOADS:
            least = 1 if name in _PAYLOADS else LEAST_BARE
            readable.payload(path, text, role, _PAYLOADS.get(str(name), modality), least)
            continue
        readable.passages.append(passage)
        if name in _LINKS:
            readable.unscannable.add(_LINKS[str(name)])
        elif holder in _LINKED and (name in _ADDRESSES or (holder == "audio" and name == "id")):
            readable.unscannable.add(modality)
    readable.unscannable |= _of_kinds(found)


def _of_kinds(found: Sequence[Passage]) -> set[Modality]:
    """By what the parts call themselves. One of an unknown kind is text only where it has nothing else."""
    unscannable: set[Modality] = set()
    unknown: set[Path] = set()
    for passage in found:
        if passage.text == "item_reference":
            unscannable.add(Modality.FILE)
        if passage.path[-1] != "type" or passage.text in _KNOWN or not _is_part(passage.path):
            continue
        modality = next((one for word, one in _WORDS.items() if word in passage.text), None)
        if modality is None:
            unknown.add(passage.path[:-1])
        else:
            unscannable.add(modality)
    if unknown and any(_inside(passage.path, unknown) for passage in found):
        unscannable.add(Modality.FILE)
    return unscannable


def _is_part(path: Path) -> bool:
    return len(path) > 2 and isinstance(path[-2], int) and path[-3] in _LISTS


def _inside(path: Path, parts: set[Path]) -> bool:
    """Something beside a part's type and text."""
    return any(path[:depth] in parts and path[depth] not in ("type", "text") for depth in range(len(path)))


_SHORTEST = len("data:;base64,")
_KINDS = {"image": Modality.IMAGE, "audio": Modality.AUDIO}
_WORDS = {"image": Modality.IMAGE, "screenshot": Modality.IMAGE, "audio": Modality.AUDIO, "video": Modality.FILE}
