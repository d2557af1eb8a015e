"""Bytes of a policy file → its tree, or the reason why there is none."""

import re
from itertools import chain
from pathlib import Path

import yaml

from router.config.source import Source

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REFERENCE = re.compile(r"\$\{[^}]*\}?")
_DEPTH = 32


def read_bytes(path: Path, source: Source) -> bytes:
    """The file's bytes; a problem and b"" where there is nothing to read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        source.report(None, "no such file", "create it, or name another policy file")
    except IsADirectoryError:
        source.report(None, "this is a directory", "name a file in it, e.g. " + str(path / "default.yaml"))
    except OSError as error:
        reason = (error.strerror or "error").lower()
        source.report(None, f"the file can't be read ({reason})", "let this user read it")
    return b""


def parse(data: bytes, source: Source) -> None:
    """Sets `source.root`, or reports why there is none."""
    try:
        text = data.decode("utf-8-sig")
        if _too_deep(text, source):
            return
        source.root = yaml.compose(text, Loader=_LOADER)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig").split("\n")
        source.report_at(len(before) - 1, len(before[-1]), "this byte is not UTF-8", "save the file as UTF-8")
        return
    except yaml.MarkedYAMLError as error:
        _report_syntax(error, text, source)
        return
    except yaml.YAMLError:
        _report_character(text, source)
        return
    if source.root is None:
        source.report(None, "the file is empty", "start it with 'version: 1', then add targets and routes")
    elif not isinstance(source.root, yaml.MappingNode):
        source.report(source.root, "a policy is a mapping", "start the file with 'version: 1'")
        source.root = None
    elif alias := _repeated(source.root, set()):
        source.report(alias, "an alias ('*') stands for this value", "write the value out in each place")
        source.root = None


def _too_deep(text: str, source: Source) -> bool:
    """Composing is recursive in C: a deep enough file would end the process instead of raising an error."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH:
            source.report_mark(event.start_mark, "nested too deeply", "flatten it: a policy is a few levels deep")
            return True
    return False


def _repeated(node: yaml.Node, seen: set[int]) -> yaml.Node | None:
    """A node met twice: aliases may be cyclic or grow without bound, and have one place where two are meant."""
    if id(node) in seen:
        return node
    seen.add(id(node))
    children = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
    found = (_repeated(child, seen) for child in children if isinstance(child, yaml.Node))
    return next(filter(None, found), None)


def _report_syntax(error: yaml.MarkedYAMLError, text: str, source: Source) -> None:
    mark = error.problem_mark or error.context_mark
    lines = text.split("\n")
    after = lines[mark.line :] if mark else []
    what = f"not valid YAML ({error.problem or error.context})"
    if error.context_mark and not any(line.strip() and not line.startswith("#") for line in after):
        source.report_mark(error.context_mark, what, "the file ends inside it: close it")
    else:
        source.report_mark(mark, what, _syntax_remedy(after[0] if after else "", mark.column if mark else 0, what))


def _syntax_remedy(line: str, column: int, what: str) -> str:
    reference = _REFERENCE.search(line, max(column - 1, 0))
    if reference and reference.start() <= column:
        return f"""inside {{ }} quote the reference: "{reference.group()}\""""
    if line[column : column + 1] == "\t":
        return "indent with spaces, not with a tab"
    if "another document" in what or "single document" in what:
        return "keep one document in the file: remove '---'"
    if "undefined alias" in what:
        return "define it before with '&', or quote the value if it starts with '*'"
    if "escape character" in what:
        return "put the value in single quotes: there a backslash is itself"
    return "close every bracket and quote, put a space after ':' and indent alike"


def _report_character(text: str, source: Source) -> None:
    """YAML admits no control characters; the parsers disagree on how to say where."""
    index = next((i for i, c in enumerate(text) if not c.isprintable() and c not in "\n\r\t"), 0)
    before = text[:index].split("\n")
    source.report_at(len(before) - 1, len(before[-1]), "a control character", "delete it")
