"""
What this machine knows and no repository does: the keys that tell our own crash notes from others.

A note that came with a cloned repository or an archive has the right name, the right owner and the right
mode. So a note carries a token made of a key of this machine and the inode number of the note's own file:
nobody who does not run here can write one, and a copy of a note is not a note.

The keys are the machine's id, which outlives a reboot, and the id of this boot, which containers share with
their host. Where there is neither (macOS), it is a random key in the user's own state folder.

Not promised: a program that runs here as the same user can make a token. What it gets from that is what it
could have written itself: a note is never believed about anything outside the folder that holds it.
"""

from __future__ import annotations

import os
from hashlib import blake2b

from noclobber.disk import small_file

_SOURCES = ("/etc/machine-id", "/proc/sys/kernel/random/boot_id")
_ID_DIGITS = 32
_KEY_BYTES = 32
_TOKEN_BYTES = 16
_TAG_DIGITS = 8

_keys: tuple[bytes, ...] = ()


def tokens(inode: int) -> tuple[bytes, ...]:
    """Return what a note may carry whose file has this inode number; one token for each key."""
    global _keys
    _keys = _keys or _machine_keys() or (_own_key(),)
    text = b"noclobber note %d" % inode
    return tuple(blake2b(text, key=key, digest_size=_TOKEN_BYTES).hexdigest().encode() for key in _keys)


def word(purpose: bytes) -> str:
    """Return a word for a purpose that users of this machine can make, and that is published nowhere."""
    # Not of the boot's id: records of locks have that.
    key = (_machine_keys(_SOURCES[:1]) or (_own_key(),))[0]
    return blake2b(purpose, key=key, digest_size=_KEY_BYTES).hexdigest()


def machine_tag() -> str:
    """
    Return a short word for this machine, for names on a volume that others have mounted as well.

    Nobody believes another machine's note. Under one name each would put the other's out of the way, and a
    process that has such a note mapped is killed by its next write to it (SIGBUS).
    """
    return tokens(0)[0][:_TAG_DIGITS].decode()


def mount_tag(device: int) -> str:
    """
    The same for one mount, where the mutex reaches nobody else; `device` is its number.

    Of this boot of this machine: two that were made from one image have one machine's id, and perhaps one
    number.
    """
    tokens(0)
    key = blake2b(b"".join(_keys), digest_size=_KEY_BYTES).digest()
    return blake2b(b"noclobber mount %d" % device, key=key, digest_size=_TAG_DIGITS // 2).hexdigest()


def _machine_keys(sources: tuple[str, ...] = _SOURCES) -> tuple[bytes, ...]:
    found = []
    for path in sources:
        try:
            with open(path, "rb") as file:
                text = file.read(64).strip().replace(b"-", b"")
        except OSError:
            continue
        # Images for containers come with an empty one, or with the word "uninitialized".
        if len(text) == _ID_DIGITS and not text.strip(b"0123456789abcdef") and text.strip(b"0"):
            found.append(text)
    return tuple(found)


def _own_key() -> bytes:
    """Return the user's own key, made at the first call; one for this process only if none can be kept."""
    base = os.environ.get("XDG_STATE_HOME", "")
    folder = f"{base if base.startswith('/') else os.path.expanduser('~/.local/state')}/noclobber"
    path, made = f"{folder}/note-key", os.urandom(_KEY_BYTES)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        try:
            small_file.publish(path, made, once=True)
        except FileExistsError:
            pass
        kept = small_file.read(path, most_bytes=_KEY_BYTES, private=True)
        return kept if len(kept) == _KEY_BYTES else made
    except OSError:
        return made
