"""`python -m router.priors.build --data DIR`: the public sets → `priors.npz` and `manifest.json`.

The same data gives the same bytes. Needs pyarrow (`pip install "lowpass[bench]"`) and the sets, which are not shipped.
"""

import argparse
import io
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from router.priors.fitting import fit, sets
from router.priors.priors import ARRAYS, FOLDER, FORMAT, MANIFEST, digest

SOURCES = {
    "frontier_2026a_dev": {"of": "pricing-reversal data: short factual questions", "licence": "MIT"},
    "routellm_dev": {"of": "RouteLLM: MMLU, a strong and a weak model", "licence": "Apache-2.0"},
    "zeroeval_dev": {"of": "ZeroEval: CRUX and MATH level 5", "licence": "Apache-2.0"},
    "mmlupro": {"of": "MMLU-Pro: results of the leaderboard's models", "licence": "Apache-2.0"},
}
DATES = "outcomes published from 2024 to early 2026"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of the files in the archive: the day of a build must not change its bytes."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public sets")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where the artefact goes")
    options = parser.parse_args(arguments)
    missing = [name for name in sets.SHIPPABLE if not (options.data / f"{name}.prompts.parquet").exists()]
    if missing:
        parser.error(f"{options.data} has no {', '.join(missing)}: give the folder that holds the public sets")
    arrays, metrics, counts = fit.fit(options.data)
    write(options.out, arrays, metrics, counts, sets.digests(options.data, sets.SHIPPABLE))
    sys.stdout.write((options.out / MANIFEST).read_text("utf-8"))


def write(
    out: Path,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    metrics: Mapping[str, object],
    counts: Mapping[str, object],
    inputs: Mapping[str, str],
) -> None:
    """Both files of the artefact."""
    data = pack(arrays)
    manifest = {
        "format": FORMAT,
        "version": digest(data),
        "built_by": "make priors",
        "dates": DATES,
        "sources": SOURCES,
        "counts": counts,
        "seed": fit.SEED,
        "metrics": metrics,
        "inputs_sha256": inputs,
    }
    (out / ARRAYS).write_bytes(data)
    (out / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def pack(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """A compressed npz without the time of day."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.ascontiguousarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, entry.getvalue())
    return archive.getvalue()


if __name__ == "__main__":
    main()
