"""Notices that the policy file changed."""

from collections.abc import Callable
from pathlib import Path

from router.config.policy import Config
from router.errors import ConfigError


class Watcher:
    """Make it before the first load: then no edit falls between the two. Pure but for the file; owns no thread."""

    def __init__(self, path: Path, load: Callable[[Path], Config]) -> None:
        self._path, self._load = path, load
        self._seen = _stamp(path)

    def poll(self) -> Config | ConfigError | None:
        """What the file says now, if it changed since the last look; a file that went missing is a change too."""
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            return self._load(self._path)
        except ConfigError as error:
            return error


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Time, size and inode: editors and mounted volumes replace the file without a later time."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
