"""A person saves with an editor: open a file, add a line, save by rename. Without noclobber."""

import os
import sys


def add_line(path: str, line: str) -> None:
    """Save as most editors do."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(f"{path}.swp", "w", encoding="utf-8") as file:
        file.write(f"{text}{line}\n")
    os.replace(f"{path}.swp", path)


if __name__ == "__main__":
    add_line(sys.argv[1], sys.argv[2])
