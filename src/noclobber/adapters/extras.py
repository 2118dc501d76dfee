"""A framework that is not installed, or not in a version that an adapter knows: the error names the extra."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def extra(name: str, *more: str) -> Iterator[None]:
    """
    Around an adapter's imports of its framework. `more`: packages to install beside the extra.

    The error stays what Python raises, so that a program can still try the import and go on without it.
    """
    try:
        yield
    except ImportError as error:
        kind, what = ImportError, f"the version of {error.name} that is installed does not fit: {error}"
        if isinstance(error, ModuleNotFoundError):
            kind, what = ModuleNotFoundError, f"{error.name} is not installed"
        wanted = " ".join([f"'noclobber[{name}]'", *more])
        raise kind(
            f"This adapter needs the extra {name!r}, and {what}. Install it with: pip install {wanted}",
            name=error.name,
        ) from error
