"""`python -m bench.budgets`: the same program as `lowpass bench budgets`."""

import sys

from router.cli import app

app(["bench", "budgets", *sys.argv[1:]])
