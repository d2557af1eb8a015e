"""A certificate for localhost, and an authority's word for it."""

import shutil
import subprocess
from pathlib import Path

import pytest

_MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    " -addext subjectAltName=DNS:localhost -keyout key.pem -out certificate.pem"
)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its key and itself, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificate with openssl")
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(_MAKE.split(), cwd=folder, check=True, capture_output=True)
    path = folder / "both.pem"
    path.write_bytes((folder / "key.pem").read_bytes() + (folder / "certificate.pem").read_bytes())
    return path


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return certificate
