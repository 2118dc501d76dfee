"""Is this folder on a volume that other machines may have mounted as well?"""

from __future__ import annotations

from noclobber.disk.filesystems import filesystem_type, is_remote


def is_shared_volume(root: str) -> bool:
    """True if other machines may write here without this kernel."""
    return is_remote(filesystem_type(root))
