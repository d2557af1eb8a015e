"""`python -m tools.priors --data DIR`: public outcomes and anchors → the data that ships with lowpass.

The same data gives the same bytes. Needs pyarrow (`pip install "lowpass-gateway[bench]"`) and the public sets.
"""

import argparse
import io
import sys
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

from router.classify import difficulty
from router.estimate import pass_rate
from tools.anchors.anchors import framed, instructed, load, surrounded, translated, within_agents
from tools.priors import abilities, outcomes, reader

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of the files in the archive: the day of a build must not change its bytes."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.priors", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public sets")
    data = parser.parse_args().data
    missing = [name for name in outcomes.SOURCES if not (data / f"{name}.prompts.parquet").exists()]
    if missing:
        parser.error(f"{data} has no {', '.join(missing)}: give the folder that holds the public sets")
    known = dict(outcomes.known_models())
    sets = outcomes.read(data, known)
    ability, hard = abilities.fit(sets, known)
    helped = abilities.fit_thinking(yaml.safe_load((Path(__file__).parent / "thinking.yaml").read_text("utf-8")))
    rows = outcomes.cards(sets, known, abilities.known_only(sets, ability), helped)
    mean, covariance = abilities.fit_cards(rows)
    apart = abilities.leave_one_out(rows)
    of_cards = {"left_out_sd": np.sqrt(np.nanmean(apart**2, axis=0)).round(3).tolist(), "models": len(rows)}
    abilities.add_writing(mean, covariance, outcomes.published(), helped)
    arrays: dict[str, Any] = {"mean": mean, "covariance": covariance, "helped": helped}
    _write(pass_rate.FOLDER, pass_rate.ARRAYS, pass_rate.MANIFEST, pass_rate.FORMAT, arrays, {"cards": of_cards}, data)
    arrays, results = _reader(sets, hard)
    _write(difficulty.FOLDER, difficulty.ARRAYS, difficulty.MANIFEST, difficulty.FORMAT, arrays, results, data)


def _reader(sets: outcomes.Sets, hard: outcomes.Vector) -> tuple[dict[str, Any], dict[str, Any]]:
    groups = reader.word_groups()
    train, test, contrasts = load("train"), load("test"), load("contrasts")
    rows = reader.joined(
        reader.anchor_rows(train, groups),
        reader.copied_rows(surrounded(train, reader.SURROUNDED), reader.SURROUNDED_WEIGHT, groups),
        reader.copied_rows(within_agents(train, reader.AGENTS), reader.AGENTS_WEIGHT, groups),
        reader.copied_rows(framed(train), reader.FRAMED_WEIGHT, groups),
        reader.copied_rows(instructed(train), reader.INSTRUCTED_WEIGHT, groups),
        reader.copied_rows(translated(), reader.TRANSLATED_WEIGHT, groups),
        reader.contrast_rows(contrasts, groups),
        reader.label_rows(sets.labels, hard, groups),
        reader.phrase_rows(groups),
    )
    held = reader.held_out(rows, groups)
    arrays = reader.fit(rows, groups)
    reader.calibrate(arrays, held)
    fitted, unseen = reader.reader(arrays), reader.anchor_rows(test, groups)
    values = np.stack([reader.outputs(fitted, unseen, at)[0] for at in range(len(test))])
    results = {"held_out": reader.metrics(held.values, train), "test": reader.metrics(values, test)}
    public = int((rows.source < 0).sum()) - len(contrasts)
    counts = {"train": len(train), "test": len(test), "contrasts": len(contrasts), "public_questions": public}
    return arrays, results | {"counts": counts, "levels": arrays["levels"].round(3).tolist()}


def _write(
    folder: Path,
    name: str,
    manifest_name: str,
    version: int,
    arrays: Mapping[str, Any],
    metrics: Mapping[str, Any],
    data: Path,
) -> None:
    packed = pack(arrays)
    manifest = {
        "format": version,
        "version": sha256(packed).hexdigest()[:16],
        "built_by": "make priors",
        "sources": outcomes.SOURCES,
        "metrics": metrics,
        "inputs_sha256": outcomes.digests(data),
    }
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(packed)
    (folder / manifest_name).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    sys.stdout.write(f"{folder / name}: {len(packed):,} bytes\n{msgspec.json.encode(metrics).decode()}\n")


def pack(arrays: Mapping[str, Any]) -> bytes:
    """A compressed npz without the time of day."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, entry.getvalue())
    return archive.getvalue()


if __name__ == "__main__":
    main()
