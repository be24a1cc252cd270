"""Full collections look at what is new, and now and then at everything."""

from __future__ import annotations

import gc
import weakref

from dodona.gateway.server import FULL_SCAN_INTERVAL, tuned_gc


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


def test_what_lived_through_a_collection_is_set_aside() -> None:
    """While it lasts, and not after."""
    with tuned_gc():
        assert gc.get_freeze_count() > 0
        fresh = weakref.ref(Cycle())
        gc.collect()
        assert fresh() is None
    assert gc.get_freeze_count() == 0


def test_what_died_after_that_is_found_at_last() -> None:
    """Nothing is kept for ever."""
    with tuned_gc():
        kept = Cycle()
        gc.collect()
        dead = weakref.ref(kept)
        del kept
        gc.collect()
        assert dead() is not None
        for _ in range(FULL_SCAN_INTERVAL):
            gc.collect()
        assert dead() is None
