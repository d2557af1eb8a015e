"""A running gateway notices edits."""

import os
from pathlib import Path

import pytest

from router.config import Config, Watcher
from router.errors import ConfigError
from tests.config import loaded
from tests.config.test_good import SMALL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    policy = tmp_path / "policy.yaml"
    policy.write_text(SMALL)
    return policy


def test_no_change(path: Path) -> None:
    assert Watcher(path, loaded).poll() is None


def test_an_edit_is_seen_once(path: Path) -> None:
    watcher = Watcher(path, loaded)
    path.write_text(SMALL.replace("auto", "other"))
    config = watcher.poll()
    assert isinstance(config, Config)
    assert list(config.routes) == ["other"]
    assert watcher.poll() is None


def test_a_bad_edit_then_a_good_one(path: Path) -> None:
    watcher = Watcher(path, loaded)
    path.write_text(SMALL.replace("version: 1", "version: 22"))
    error = watcher.poll()
    assert isinstance(error, ConfigError)
    assert [problem.line for problem in error.problems] == [1]
    assert watcher.poll() is None
    path.write_text(SMALL)
    assert isinstance(watcher.poll(), Config)


def test_a_file_that_goes_and_comes_back(path: Path) -> None:
    watcher = Watcher(path, loaded)
    path.unlink()
    error = watcher.poll()
    assert isinstance(error, ConfigError)
    assert "no such file" in str(error)
    assert watcher.poll() is None
    path.write_text(SMALL)
    assert isinstance(watcher.poll(), Config)


def test_a_replaced_file_of_the_same_time_and_size(path: Path, tmp_path: Path) -> None:
    """As editors and mounted volumes do it."""
    watcher = Watcher(path, loaded)
    status = path.stat()
    other = tmp_path / "new.yaml"
    other.write_text(SMALL.replace("auto", "oven"))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    config = watcher.poll()
    assert isinstance(config, Config)
    assert list(config.routes) == ["oven"]
