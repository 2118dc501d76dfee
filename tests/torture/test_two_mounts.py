"""Two mounts of one folder, and nobody who orders their writes: never worse than a program without a guard."""

from __future__ import annotations

import pytest
from torture.mounts import Mount

from torture import two_mounts


@pytest.mark.slow
@pytest.mark.parametrize("way", two_mounts.WAYS, ids=lambda way: way.name)
def test_guarded_writers_on_two_mounts_are_never_worse_than_plain_renames(way: Mount) -> None:
    """finding R11: the name was gone in 6 of 14 runs, and the record broken in nearly all."""
    found = two_mounts.judged(way, 20261118, 4.0)
    if isinstance(found, str):
        pytest.skip(found)
    control, guarded = found
    assert control.acknowledged
    assert guarded.acknowledged
    assert guarded.is_not_worse_than(control), (control, guarded)


def test_the_referee_convicts_what_is_worse_than_its_control() -> None:
    """N-proof: a proof that cannot fail proves nothing."""
    control = two_mounts.TwoMounts(100, 50, 0, 0, is_there=True, is_chained=True)
    assert control._replace(acknowledged=10, lost=5).is_not_worse_than(control)
    assert not control._replace(lost=51).is_not_worse_than(control)
    assert not control._replace(lost=0, is_there=False).is_not_worse_than(control)
    assert not control._replace(lost=0, is_chained=False).is_not_worse_than(control)
    assert not control._replace(lost=0, foreign=1).is_not_worse_than(control)
