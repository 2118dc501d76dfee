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
    try:
        add_line(sys.argv[1], sys.argv[2])
    except FileNotFoundError as error:  # The demo was interrupted, and its folder is gone.
        sys.exit(f"{error.filename} is gone")
