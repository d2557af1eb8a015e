"""`python -m tools.catalog` writes the catalog anew from the price lists that are installed: docs/prices.md."""

import sys
from datetime import UTC, datetime

from adapters.catalog.compare import FOLDER
from tools.catalog.regenerate import regenerate

if __name__ == "__main__":
    regenerated = regenerate(FOLDER, datetime.now(UTC).date())
    for model in regenerated.changed:
        sys.stdout.write(f"{model}: a new price\n")
    for model in regenerated.added:
        sys.stdout.write(f"{model}: added\n")
    for reason, count in sorted(regenerated.absent.items()):
        sys.stdout.write(f"{count} models of the lists are absent: {reason}\n")
