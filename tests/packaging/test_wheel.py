"""What is installed without an editable checkout holds every file that the running gateway reads."""

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from tests.packaging.project import ROOT

PACKAGES = ("router", "adapters", "local_serving", "policies")
BUILD = "from setuptools.build_meta import build_wheel; import sys; print(build_wheel(sys.argv[1]))"


def test_the_wheel_holds_every_source_and_data_file(tmp_path: Path) -> None:
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    files = [path for name in PACKAGES for path in (tmp_path / name).rglob("*.*") if path.is_file()]
    expected = {path.relative_to(tmp_path).as_posix() for path in files}
    subprocess.run([sys.executable, "-c", BUILD, "dist"], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    assert expected - shipped == set()
    assert "local_serving/engines/smollm2.yaml" in shipped
