"""`python -m bench [NAME …]`: run the tables, print the ratios, say which bars are missed."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import bench


def main(names: list[str]) -> int:
    """Run every table, or the named ones; exit code 1 if a bar is missed."""
    found = sorted(
        module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__"
    )
    unknown = set(names) - set(found)
    if unknown:
        print(f"no such table: {', '.join(sorted(unknown))}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or found:
        module = importlib.import_module(f"bench.{name}")
        if not hasattr(module, "rows"):
            continue
        print(f"\n{name}")
        os.sync()  # What the table before left for the disk to do would be counted here.
        for row in module.rows():
            missed += not row.ok
            verdict = "ok" if row.ok else "MISSED"
            print(
                f"  {row.what:<44} {row.ratio:>9.3g}  bar {row.bar:<10} {verdict:<7} {row.detail}", flush=True
            )
            print(f"  {'':<44} against {row.against}")
    print(f"\n{missed} bars missed" if missed else "\nall bars met")
    return 1 if missed else 0


sys.exit(main(sys.argv[1:]))
