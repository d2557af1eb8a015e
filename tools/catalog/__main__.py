"""`python -m tools.catalog` writes the catalog anew from the price lists that are installed, and with `--compare` lists
where it differs from them: docs/prices.md."""

import argparse
import sys
from datetime import UTC, datetime

from tools.catalog.compare import FOLDER, STALE_DAYS, compare
from tools.catalog.regenerate import regenerate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.catalog", description=__doc__)
    parser.add_argument("--compare", action="store_true", help="write nothing; fail at a difference without a reason")
    parser.add_argument("--days", type=int, default=STALE_DAYS, help="a price unconfirmed for longer is stale")
    options, today = parser.parse_args(), datetime.now(UTC).date()
    if options.compare:
        comparison = compare(today, options.days)
        sys.stdout.writelines(f"{line}\n" for line in (*comparison.disagreements, *comparison.stale, comparison))
        return bool(comparison.unexplained)
    regenerated = regenerate(FOLDER, today)
    sys.stdout.writelines(f"{model}: a new price\n" for model in regenerated.changed)
    sys.stdout.writelines(f"{model}: added\n" for model in regenerated.added)
    for reason, count in sorted(regenerated.absent.items()):
        sys.stdout.write(f"{count} models of the lists are absent: {reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
