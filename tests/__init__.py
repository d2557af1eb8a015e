"""Everything that must hold, by package; `README.md` says where a test goes."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Read when numpy is first imported: its threads would fight with the other processes of the suite."""
