"""`router.estimate.fit` is a function, whatever was imported before."""

import subprocess
import sys


def test_the_gateway_does_not_hide_the_offline_estimator() -> None:
    code = "import router.app, router.estimate; print(callable(router.estimate.fit))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"
