"""A model that comes in pieces is joined once, and only what is whole and right is ever served."""

import sys
from hashlib import sha256
from pathlib import Path

import pytest

from local_serving.launch.llamacpp import model_path
from local_serving.spec import EngineError, Llamacpp, Parts

CONTENTS = (b"first " * 1000, b"second")
WHOLE = sha256(b"".join(CONTENTS)).hexdigest()
PIECES = ("lowpass_test_part0/data/piece", "lowpass_test_part1/data/piece")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages with a piece each, and a place for what is joined."""
    for number, piece in enumerate(CONTENTS):
        package = tmp_path / "site" / f"lowpass_test_part{number}"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('it is not to be imported')")
        (package / "data" / "piece").write_bytes(piece)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path / "home"))
    for name in [name for name in sys.modules if name.startswith("lowpass_test_part")]:
        del sys.modules[name]
    return tmp_path / "home"


def engine(*pieces: str, digest: str = WHOLE) -> Llamacpp:
    parts = Parts(pieces=pieces or PIECES, sha256=digest)
    return Llamacpp(name="mine", model="local/mine", file="mine.gguf", parts=parts, context=512)


def test_pieces_are_joined_once_in_their_order(home: Path) -> None:
    path = model_path(engine())
    assert path.parent == home / "models"
    assert path.read_bytes() == b"".join(CONTENTS)
    written = path.stat().st_mtime_ns
    assert model_path(engine()) == path
    assert path.stat().st_mtime_ns == written


def test_what_is_missing_or_wrong_is_named_with_the_remedy_and_not_kept(home: Path) -> None:
    with pytest.raises(EngineError, match=r"the parts of .*mine\.gguf are not what they should be: reinstall"):
        model_path(engine(digest="0" * 64))
    assert not list((home / "models").iterdir())
    with pytest.raises(EngineError, match="pip install lowpass-none1 lowpass-none2"):
        model_path(engine("lowpass_none1/data/piece", PIECES[0], "lowpass_none2/data/piece"))
    with pytest.raises(EngineError, match=r"data/other is missing: reinstall the package lowpass_test_part0"):
        model_path(engine("lowpass_test_part0/data/other"))


def test_a_home_that_cannot_be_written_is_named(home: Path) -> None:
    home.write_text("a file, not a folder")
    with pytest.raises(EngineError, match=r"can't write .*: free some space, or set LOWPASS_HOME"):
        model_path(engine())
